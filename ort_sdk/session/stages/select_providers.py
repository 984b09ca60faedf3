"""Which providers a session uses: those it names, those its options name or choose, or the CPU provider alone."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from ort_sdk.api import Fail, InvalidArgument
from ort_sdk.config_keys import DISABLE_CPU_EP_FALLBACK
from ort_sdk.plugins import plugin_manager
from ort_sdk.session.enums import OrtExecutionProviderDevicePolicy, OrtHardwareDeviceType
from ort_sdk.session.values.ep_devices import OrtEpDevice, get_ep_devices

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
        chosen = _by_policy(policy)
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


_PREFERRED: dict[OrtExecutionProviderDevicePolicy, OrtHardwareDeviceType] = {
    OrtExecutionProviderDevicePolicy.PREFER_CPU: OrtHardwareDeviceType.CPU,
    OrtExecutionProviderDevicePolicy.PREFER_NPU: OrtHardwareDeviceType.NPU,
    OrtExecutionProviderDevicePolicy.PREFER_GPU: OrtHardwareDeviceType.GPU,
    OrtExecutionProviderDevicePolicy.MAX_PERFORMANCE: OrtHardwareDeviceType.GPU,
    OrtExecutionProviderDevicePolicy.MAX_EFFICIENCY: OrtHardwareDeviceType.NPU,
    OrtExecutionProviderDevicePolicy.MIN_OVERALL_POWER: OrtHardwareDeviceType.NPU,
}
MAX_SELECTIONS = 8


def _by_policy(policy: Any) -> ProviderList:
    devices = get_ep_devices()
    if isinstance(policy, OrtExecutionProviderDevicePolicy):
        wanted = _PREFERRED.get(policy, OrtHardwareDeviceType.CPU)
        selected = [device for device in devices if device.device.type is wanted][:1]
    else:
        selected = _ask(policy, devices)
    return [
        (device.ep_name, {"device_id": str(device.ort_device.index)}) for device in selected if device.ep_name != CPU_PROVIDER
    ]


def _ask(
    delegate: Callable[[Sequence[OrtEpDevice], dict[str, str], dict[str, str], int], Sequence[OrtEpDevice]],
    devices: list[OrtEpDevice],
) -> list[OrtEpDevice]:
    try:
        selected = list(delegate(devices, {}, {}, MAX_SELECTIONS))
    except Exception as error:
        raise Fail(f"the provider selection delegate raised {type(error).__name__}: {error}") from error
    if not selected or len(selected) > MAX_SELECTIONS or not all(isinstance(device, OrtEpDevice) for device in selected):
        raise Fail(f"the provider selection delegate must return 1 to {MAX_SELECTIONS} of the OrtEpDevices it got: {selected!r}")
    return selected
