"""Copies between devices as kernels of a plan: declared, so that what is known of a value is known of its copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import CPU_DEVICE, OrtDevice, Slot

from .data_transfer_manager import DataTransferManager

__all__ = ["DeviceCopy"]


class DeviceCopy:
    """Copies its input from one device to another.

    Args:
        transfers: of the session.
        source: device of the input.
        target: device of the output.
    """

    deterministic = True
    shape_inputs: tuple[int, ...] = ()

    __slots__ = ("_transfers", "source", "target")

    def __init__(self, transfers: DataTransferManager, source: OrtDevice, target: OrtDevice) -> None:
        self._transfers = transfers
        self.source = source
        self.target = target

    @property
    def is_upload(self) -> bool:
        """Whether it copies from the host: a device may read that memory until the work of the run is done."""
        return self.source == CPU_DEVICE

    @property
    def device(self) -> OrtDevice:
        """The device whose provider copies: the one that is not the host."""
        return self.target if self.is_upload else self.source

    @property
    def may_bind(self) -> bool:
        """Whether ``bind`` works: between the host and a device whose transfer binds copies."""
        return CPU_DEVICE in (self.source, self.target) and self._transfers.can_bind(self.source, self.target)

    def compute(self, value: Any) -> Any:
        """The value on the other device."""
        return self._transfers.copy(value, self.source, self.target)

    def bind(self, inputs: list[Slot], outputs: list[Slot]) -> Callable[[], None]:
        """The copy as a call without arguments, from what one slot holds to what the other one holds."""
        return self._transfers.bind_copy(inputs[0], self.source, outputs[0], self.target)
