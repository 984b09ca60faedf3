"""Which providers a session uses: those it names, those its options name or choose, or the CPU provider alone."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from ort_sdk.api import InvalidArgument
from ort_sdk.config_keys import DISABLE_CPU_EP_FALLBACK
from ort_sdk.plugins import plugin_manager

__all__ = ["CPU_PROVIDER", "ProviderList", "choose_providers"]

CPU_PROVIDER = "CPUExecutionProvider"
ProviderList = list[tuple[str, dict[str, str]]]
"""(provider name, options), in order of preference."""


def choose_providers(
    providers: Any,
    provider_options: Any,
    option_providers: Sequence[tuple[str, dict[str, str]]],
    policy: Any,
    config: Mapping[str, str],
) -> ProviderList:
    """Providers of a session, the CPU provider last if nobody named it.

    Args:
        providers: names or (name, options) tuples; None for no choice.
        provider_options: options for ``providers`` given as names.
        option_providers: providers of the session's options.
        policy: policy or delegate of the session's options.
        config: config entries of the session.

    Raises:
        InvalidArgument: malformed arguments, or the CPU provider named and forbidden at once.
    """
    if providers:
        if option_providers or policy is not None:
            _warn(
                "Specified 'providers'/'provider_options' when creating InferenceSession but SessionOptions has already been "
                "configured with providers. InferenceSession will only use the providers passed to InferenceSession()."
            )
        chosen = _installed(_normal(providers, provider_options))
    elif option_providers:
        chosen = _installed(list(option_providers))
    elif policy is not None:
        from .provider_policy import device_choices

        chosen = [choice for choice in device_choices(policy) if choice[0] != CPU_PROVIDER]
    else:
        # As with onnxruntime's CPU package: an accelerator is used by those who ask for it, by name or by policy.
        chosen = []
    return _with_cpu(chosen, config)


def _with_cpu(chosen: ProviderList, config: Mapping[str, str]) -> ProviderList:
    names = [name for name, _ in chosen]
    if CPU_PROVIDER not in names:
        return [*chosen, (CPU_PROVIDER, {})]
    if config.get(DISABLE_CPU_EP_FALLBACK) == "1":
        raise InvalidArgument(
            "Conflicting session configuration: explicitly added the CPU EP to the session, but also disabled fallback to the "
            "CPU EP via session configuration options."
        )
    return chosen


def _normal(providers: Any, provider_options: Any) -> ProviderList:
    if isinstance(providers, str):
        providers = [providers]
    if not isinstance(providers, Sequence):
        raise InvalidArgument(f"'providers' should be a sequence, got {type(providers).__name__}.")
    if provider_options is None:
        return [_entry(provider) for provider in providers]
    if not isinstance(provider_options, Sequence):
        raise InvalidArgument(f"'provider_options' should be a sequence, got {type(provider_options).__name__}.")
    if len(providers) != len(provider_options):
        raise InvalidArgument(
            "'providers' and 'provider_options' should be the same length if both are given, "
            f"got {len(providers)} and {len(provider_options)}."
        )
    if not all(isinstance(provider, str) for provider in providers):
        raise InvalidArgument("Only string values for 'providers' are supported if 'provider_options' is given.")
    if not all(isinstance(options, Mapping) for options in provider_options):
        raise InvalidArgument("'provider_options' values must be dicts.")
    return [_entry((name, options)) for name, options in zip(providers, provider_options, strict=True)]


def _entry(provider: Any) -> tuple[str, dict[str, str]]:
    if isinstance(provider, str):
        return provider, {}
    if isinstance(provider, (tuple, list)) and len(provider) == 2:
        name, options = provider
        if isinstance(name, str) and isinstance(options, Mapping):
            return name, {str(key): str(value) for key, value in options.items()}
    raise InvalidArgument(f"'providers' values must be either strings or (string, dict) tuples, got {provider!r}.")


def _warn(text: str) -> None:
    """A warning at the line that called this package."""
    frame: FrameType | None = sys._getframe()
    level = 1
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "ort_sdk":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def _installed(entries: ProviderList) -> ProviderList:
    """Without duplicates and providers that are not installed, with a warning for each. One that is broken raises later."""
    chosen: ProviderList = []
    for name, options in entries:
        if not _is_known(name):
            available = ", ".join(handle.name for handle in plugin_manager().available_providers())
            _warn(f"Specified provider '{name}' is not in available provider names.Available providers: '{available}'")
        elif name in [other for other, _ in chosen]:
            _warn(f"Duplicate provider '{name}' encountered, ignoring.")
        else:
            chosen.append((name, options))
    return chosen


def _is_known(name: str) -> bool:
    """Whether a provider of that name is installed, usable or not."""
    return any(record.is_named(name) for record in plugin_manager().provider_records())
