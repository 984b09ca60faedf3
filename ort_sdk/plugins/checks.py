"""Whether a plugin object keeps the contract: API version, name, and every hook's signature.

pluggy itself accepts misspelt hooks, ignores unmarked overrides, and drops arguments in silence where an implementation
has defaults or keyword-only parameters; here each of these is a fault with the difference spelt out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ort_sdk.api import API_VERSION, PluginHooks, ProviderHooks, ProviderRefusedError

__all__ = ["PLUGIN_HOOK_NAMES", "PROVIDER_HOOK_NAMES", "check_plugin", "is_wrapper", "may_be_marked", "wraps_provider_hook"]

HookOptions = Mapping[str, Any]
"""What ``@hookimpl`` noted on a method."""

ReadOptions = Callable[[Any, str], HookOptions | None]
"""Reads a plugin attribute's options; None if it is not marked."""


def _hook_names(specification: type) -> tuple[str, ...]:
    return tuple(name for name, value in vars(specification).items() if inspect.isfunction(value) and name[0] != "_")


PROVIDER_HOOK_NAMES = _hook_names(ProviderHooks)
PLUGIN_HOOK_NAMES = _hook_names(PluginHooks)
REQUIRED_PROVIDER_HOOKS = ("get_supported_devices", "create_execution_provider")


def check_plugin(plugin: Any, read_options: ReadOptions, *, is_provider: bool) -> None:
    """Check a plugin object before it is registered.

    Raises:
        ProviderRefusedError: it breaks the contract; the text lists every fault.
    """
    faults = [*_identity_faults(plugin), *_hook_faults(plugin, read_options, is_provider=is_provider)]
    if faults:
        raise ProviderRefusedError("; ".join(faults))


def may_be_marked(attribute: str) -> bool:
    """Whether a plugin's attribute may implement a hook: those that Python gives every object are not looked at, most of all."""
    return not attribute.startswith("__")


def is_wrapper(options: HookOptions) -> bool:
    """Whether the implementation wraps others' instead of answering itself."""
    return bool(options.get("wrapper") or options.get("hookwrapper"))


def wraps_provider_hook(attribute: str, options: HookOptions) -> bool:
    """Whether a plugin's method wraps a provider hook. A wrapper of a name both have belongs to the provider's hook."""
    return is_wrapper(options) and hook_name(attribute, options) in PROVIDER_HOOK_NAMES


def hook_name(attribute: str, options: HookOptions) -> str:
    """Hook that a marked method implements."""
    return options.get("specname") or attribute


def _identity_faults(plugin: Any) -> Iterator[str]:
    version = getattr(plugin, "api_version", None)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        yield f"api_version must be an int from 1 to {API_VERSION}, got {version!r}"
    elif version > API_VERSION:
        yield f"it is written for API version {version}, this host has {API_VERSION}: upgrade ort-sdk"
    name = getattr(plugin, "name", None)
    if not isinstance(name, str) or not name:
        yield f"attribute 'name' must be a text like 'MyExecutionProvider', got {name!r}"
    if any("__eq__" in vars(base) for base in type(plugin).__mro__[:-1]):
        yield f"{type(plugin).__name__} defines __eq__ (as dataclasses do, unless eq=False); plugins are compared by identity"


def _hook_faults(plugin: Any, read_options: ReadOptions, *, is_provider: bool) -> Iterator[str]:
    names = PROVIDER_HOOK_NAMES if is_provider else PLUGIN_HOOK_NAMES
    implemented = set()
    for attribute in filter(may_be_marked, dir(plugin)):
        options = read_options(plugin, attribute)
        if options is not None:
            implemented.add(hook_name(attribute, options))
            yield from _marked_faults(plugin, attribute, options, is_provider=is_provider)
        elif attribute in names and not _is_specification(plugin, attribute):
            yield f"'{attribute}' is named like a hook and not marked with @hookimpl, so it would never be called"
    if is_provider:
        for required in REQUIRED_PROVIDER_HOOKS:
            if required not in implemented:
                yield f"hook '{required}' is missing, and every provider needs it"


def _is_specification(plugin: Any, attribute: str) -> bool:
    """Whether the attribute is inherited from the specification class, that is: not implemented."""
    found = inspect.getattr_static(plugin, attribute)
    return any(found is vars(specification).get(attribute) for specification in (ProviderHooks, PluginHooks))


def _marked_faults(plugin: Any, attribute: str, options: HookOptions, *, is_provider: bool) -> Iterator[str]:
    hook = hook_name(attribute, options)
    if is_provider and is_wrapper(options):
        yield f"'{attribute}' is a wrapper; a provider answers its hooks, wrappers belong in a plugin of group 'ort_sdk.plugins'"
        return
    of_provider = is_provider or wraps_provider_hook(attribute, options)
    names = PROVIDER_HOOK_NAMES if of_provider else PLUGIN_HOOK_NAMES
    if hook not in names:
        if not options.get("optionalhook"):
            yield _unknown_hook(hook, names + PROVIDER_HOOK_NAMES if is_wrapper(options) else names)
        return
    if inspect.iscoroutinefunction(getattr(plugin, attribute)):
        yield f"hook '{hook}' is a coroutine; hooks are plain functions"
    specification = getattr(ProviderHooks if of_provider else PluginHooks, hook)
    difference = _signature_difference(getattr(plugin, attribute), specification)
    if difference:
        expected = ", ".join(_parameters(specification))
        yield f"hook '{hook}' has the wrong signature: {difference}; expected {hook}({expected})"


def _unknown_hook(hook: str, names: tuple[str, ...]) -> str:
    import difflib

    close = difflib.get_close_matches(hook, names, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"hooks are {', '.join(names)}"
    return f"'{hook}' is marked with @hookimpl and is no hook: {hint}"


def _parameters(specification: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(specification).parameters)[1:]


def _signature_difference(implementation: Callable[..., Any], specification: Callable[..., Any]) -> str:
    expected = _parameters(specification)
    given = inspect.signature(implementation).parameters
    missing = [name for name in expected if name not in given]
    extra = [str(parameter).partition(":")[0] for name, parameter in given.items() if name not in expected]
    shared = [given[name] for name in expected if name in given]
    keyword_only = [parameter.name for parameter in shared if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    defaulted = [parameter.name for parameter in shared if parameter.default is not inspect.Parameter.empty]
    parts = (("missing", missing), ("extra", extra), ("keyword-only", keyword_only), ("with a default", defaulted))
    return ", ".join(f"{word} {', '.join(names)}" for word, names in parts if names)
