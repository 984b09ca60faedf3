"""Which devices a session uses whose options name a policy, or a delegate that chooses among all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import Fail
from ort_sdk.session.enums import OrtHardwareDeviceType
from ort_sdk.session.option_enums import OrtExecutionProviderDevicePolicy
from ort_sdk.session.values.ep_devices import OrtEpDevice, get_ep_devices

__all__ = ["device_choices"]

_PREFERRED: dict[OrtExecutionProviderDevicePolicy, OrtHardwareDeviceType] = {
    OrtExecutionProviderDevicePolicy.PREFER_CPU: OrtHardwareDeviceType.CPU,
    OrtExecutionProviderDevicePolicy.PREFER_NPU: OrtHardwareDeviceType.NPU,
    OrtExecutionProviderDevicePolicy.PREFER_GPU: OrtHardwareDeviceType.GPU,
    OrtExecutionProviderDevicePolicy.MAX_PERFORMANCE: OrtHardwareDeviceType.GPU,
    OrtExecutionProviderDevicePolicy.MAX_EFFICIENCY: OrtHardwareDeviceType.NPU,
    OrtExecutionProviderDevicePolicy.MIN_OVERALL_POWER: OrtHardwareDeviceType.NPU,
}
MAX_SELECTIONS = 8


def device_choices(policy: Any) -> list[tuple[str, dict[str, str]]]:
    """Providers, with the option that names the device, of the devices that a policy or delegate chooses.

    Raises:
        Fail: the delegate failed, or returned too many or other things than devices.
    """
    devices = get_ep_devices()
    if isinstance(policy, OrtExecutionProviderDevicePolicy):
        wanted = _PREFERRED.get(policy, OrtHardwareDeviceType.CPU)
        selected = [device for device in devices if device.device.type is wanted][:1]
    else:
        selected = _ask(policy, devices)
    return [(device.ep_name, {"device_id": str(device.ort_device.index)}) for device in selected]


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
