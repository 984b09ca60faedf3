"""The provider's options: which device, in which dialect, with how much memory, and whether kernels are tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ort_sdk.api import InvalidArgument
from ort_sdk.api.data_classes import dataclass

from .devices import DIALECTS, FoundDevice

__all__ = ["OPTIONS", "ProviderOptions", "parsed_options"]

OPTIONS = {
    "device_id": "number of a device, as `ort-sdk providers --check` lists them",
    "platform": "part of a platform's name: the first of its devices",
    "device_name": "part of a device's name: the first such device",
    "dialect": f"{' or '.join(DIALECTS)}",
    "gpu_mem_limit": "most bytes to hold on the device; 0 for no limit",
    "tunable_op_enable": "1 to compute products in the forms that tuning found to be fastest on the device, else 0",
    "tunable_op_tuning_enable": "1 to compare forms by time where nothing is known yet, else 0",
}
"""Name → what it may be."""


@dataclass(frozen=True, slots=True)
class ProviderOptions:
    """What a session asks for."""

    index: int
    """Of the device."""
    dialect: str
    limit_bytes: int = 0
    """Of memory on the device; 0 for no limit."""
    is_tuned: bool = False
    """Whether what tuning found is used."""
    tunes: bool = False
    """Whether forms are compared where nothing is known."""


def parsed_options(options: Mapping[str, str], devices: Sequence[FoundDevice], default_index: int) -> ProviderOptions:
    """The options as values.

    Args:
        options: as the user gave them.
        devices: all there are.
        default_index: of the device that the host chose, by ``device_id`` if that is given.

    Raises:
        InvalidArgument: an option or its value is not known, or no device is as described; says what is allowed.
    """
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        allowed = "; ".join(f"{name} ({text})" for name, text in OPTIONS.items())
        raise InvalidArgument(f"OpenCLExecutionProvider has no option {', '.join(map(repr, unknown))}; it has: {allowed}")
    index = _device_index(options, devices, default_index)
    is_tuned, tunes = _flag(options, "tunable_op_enable"), _flag(options, "tunable_op_tuning_enable")
    if tunes and not is_tuned:
        raise InvalidArgument(
            "OpenCLExecutionProvider: tunable_op_tuning_enable=1 without tunable_op_enable=1, so that what is found would not be "
            "used: give both, or none"
        )
    return ProviderOptions(index, _dialect(options, devices[index]), _limit(options), is_tuned, tunes)


def _device_index(options: Mapping[str, str], devices: Sequence[FoundDevice], default_index: int) -> int:
    if "platform" not in options and "device_name" not in options:
        return default_index
    platform, name = str(options.get("platform", "")).casefold(), str(options.get("device_name", "")).casefold()
    fitting = [
        index for index, each in enumerate(devices) if platform in each.platform.casefold() and name in each.name.casefold()
    ]
    if "device_id" in options:
        fitting = [index for index in fitting if index == default_index]
    if not fitting:
        wanted = ", ".join(f"{key}={options[key]!r}" for key in ("device_id", "platform", "device_name") if key in options)
        there = "; ".join(f"{index}: {each.label}" for index, each in enumerate(devices))
        raise InvalidArgument(f"OpenCLExecutionProvider: no device with {wanted}; there are {there}")
    return fitting[0]


def _dialect(options: Mapping[str, str], device: FoundDevice) -> str:
    if "dialect" not in options:
        return device.default_dialect
    wanted = str(options["dialect"])
    if wanted not in device.dialects:
        reason = "the device has no sub-groups" if wanted in DIALECTS else "there is no such dialect"
        allowed = " or ".join(device.dialects)
        raise InvalidArgument(f"OpenCLExecutionProvider: dialect={wanted!r} on {device.label}: {reason}; allowed here: {allowed}")
    return wanted


def _limit(options: Mapping[str, str]) -> int:
    text = str(options.get("gpu_mem_limit", "0"))
    if not text.isdecimal():
        raise InvalidArgument(f"OpenCLExecutionProvider: gpu_mem_limit must be a number of bytes, 0 for no limit, got {text!r}")
    return int(text)


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = str(options.get(name, "0"))
    if text not in {"0", "1"}:
        raise InvalidArgument(f"OpenCLExecutionProvider: {name} must be 0 or 1, got {text!r}")
    return text == "1"
