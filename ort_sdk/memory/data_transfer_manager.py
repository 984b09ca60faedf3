"""Copies of values between devices: one transfer if one can do it, over the host otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ort_sdk.api import CPU_DEVICE, Array, DataTransfer, EPFail, Fail, HostArray, OrtDevice, Slot
from ort_sdk.api.foreign_errors import raise_foreign

__all__ = ["DataTransferManager"]


class DataTransferManager:
    """The data transfers of a session's providers.

    Args:
        transfers: in order of the providers.
        owners: the providers' names, for errors.
    """

    def __init__(self, transfers: Sequence[DataTransfer], owners: Sequence[str] = ()) -> None:
        self._transfers = tuple(transfers)
        self._owners = {id(transfer): owner for transfer, owner in zip(transfers, owners, strict=False)}

    def copy(self, value: Array, source: OrtDevice, target: OrtDevice) -> Array:
        """The value on another device; sequences element by element, maps and None as they are.

        Raises:
            Fail: no transfer reaches either device.
        """
        if value is None or isinstance(value, dict):
            return value
        if isinstance(value, list):
            return [self.copy(element, source, target) for element in value]
        direct = self._find(source, target)
        if direct is not None:
            return self._copied(direct, value, source, target)
        to_host = self._find(source, CPU_DEVICE)
        from_host = self._find(CPU_DEVICE, target)
        if to_host is None or from_host is None:
            raise Fail(
                f"There's no data transfer registered for copying tensors from {source} to {target}: "
                f"{len(self._transfers)} transfers were asked, directly and over the host"
            )
        return self._copied(from_host, self._copied(to_host, value, source, CPU_DEVICE), CPU_DEVICE, target)

    def copy_all(self, values: Sequence[Array], source: OrtDevice, destinations: Sequence[HostArray | None]) -> list[Any]:
        """Values of one device on the host, after one wait if its transfer can do that.

        Args:
            values: as of ``copy``.
            source: their device.
            destinations: for each, the host array to fill, of the same shape and type; None for a new one.
        """
        transfer: Any = self._find(source, CPU_DEVICE)
        copy_all = getattr(transfer, "copy_all", None)
        if copy_all is None or any(value is None or isinstance(value, (list, dict)) for value in values):
            return [self._on_host(value, source, given) for value, given in zip(values, destinations, strict=True)]
        try:
            copied = list(copy_all(values, source, destinations))
        except Exception as error:  # noqa: BLE001 - a transfer may raise anything
            raise_foreign(error, f"raised in copy_all of {self._label(transfer)}, from {source}")
        if len(copied) != len(values):
            raise EPFail(f"copy_all of {self._label(transfer)} was given {len(values)} arrays and gave {len(copied)}")
        return copied

    def _on_host(self, value: Array, source: OrtDevice, destination: HostArray | None) -> Any:
        if destination is None:
            return self.copy(value, source, CPU_DEVICE)
        if not self.copy_into(value, source, destination, CPU_DEVICE):
            destination[...] = self.copy(value, source, CPU_DEVICE)
        return destination

    def copy_into(self, value: Array, source: OrtDevice, destination: Array, target: OrtDevice) -> bool:
        """Fill an array the caller owns.

        Returns:
            False if no transfer between the two devices can do it.
        """
        fill = self.filler(source, target)
        if fill is not None:
            fill(value, destination)
        return fill is not None

    def filler(self, source: OrtDevice, target: OrtDevice) -> Callable[[Array, Array], None] | None:
        """A call that fills its second array, on ``target``, with the first, on ``source``; None if no transfer can do it."""
        transfer: Any = self._find(source, target)
        copy_into = getattr(transfer, "copy_into", None)
        if copy_into is None:
            return None
        label = self._label(transfer)

        def fill(value: Array, destination: Array) -> None:
            try:
                copy_into(value, source, destination, target)
            except Exception as error:  # noqa: BLE001 - a transfer may raise anything
                raise_foreign(error, f"raised in copy_into of {label}, from {source} to {target}")

        return fill

    def can_copy_into(self, source: OrtDevice, target: OrtDevice) -> bool:
        """Whether ``copy_into`` works between two devices."""
        return hasattr(self._find(source, target), "copy_into")

    def can_bind(self, source: OrtDevice, target: OrtDevice) -> bool:
        """Whether ``bind_copy`` works between two devices."""
        return hasattr(self._find(source, target), "bind_copy")

    def bind_copy(self, source: Slot, source_device: OrtDevice, target: Slot, target_device: OrtDevice) -> Callable[[], None]:
        """A call that copies what one slot holds into what another one holds; see ``SupportsBindCopy``.

        Raises:
            EPFail: the transfer gave nothing that can be called.
        """
        transfer: Any = self._find(source_device, target_device)
        try:
            call: Callable[[], None] = transfer.bind_copy(source, target)
        except Exception as error:  # noqa: BLE001 - a transfer may raise anything
            raise_foreign(error, f"raised in bind_copy of {self._label(transfer)}, from {source_device} to {target_device}")
        if not callable(call):
            raise EPFail(f"{self._label(transfer)}: bind_copy must give a call without arguments, gave {call!r:.200}")
        return call

    def can_stream(self, target: OrtDevice) -> bool:
        """Whether ``stream_into`` reaches a device."""
        return hasattr(self._find(CPU_DEVICE, target), "stream_into")

    def stream_into(self, pieces: Iterable[HostArray], destination: Array, target: OrtDevice) -> None:
        """Fill an array the caller owns with bytes of the host that come in pieces."""
        transfer: Any = self._find(CPU_DEVICE, target)
        try:
            transfer.stream_into(pieces, destination, target)
        except Exception as error:  # noqa: BLE001 - a transfer may raise anything
            raise_foreign(error, f"raised in stream_into of {self._label(transfer)}, to {target}")

    def _find(self, source: OrtDevice, target: OrtDevice) -> DataTransfer | None:
        for transfer in self._transfers:
            try:
                if transfer.can_copy(source, target):
                    return transfer
            except Exception as error:  # noqa: BLE001 - a transfer may raise anything
                raise_foreign(error, f"raised in can_copy of {self._label(transfer)}, from {source} to {target}")
        return None

    def _copied(self, transfer: DataTransfer, value: Array, source: OrtDevice, target: OrtDevice) -> Array:
        try:
            return transfer.copy(value, source, target)
        except Exception as error:  # noqa: BLE001 - a transfer may raise anything
            raise_foreign(error, f"while {self._label(transfer)} copied from {source} to {target}")

    def _label(self, transfer: DataTransfer) -> str:
        """A transfer as messages name it."""
        owner = self._owners.get(id(transfer))
        return f"{type(transfer).__name__} of {owner}" if owner else type(transfer).__name__
