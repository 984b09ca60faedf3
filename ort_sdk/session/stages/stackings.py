"""Stacking what a body leaves on a device in each iteration, by the Unsqueeze and the Concat of the device's provider."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk.api import CPU_DEVICE, Array, KernelCreateInfo, KernelInfo, NodeArg, OrtDevice
from ort_sdk.memory import DataTransferManager
from ort_sdk.session.providers.opened import SessionProvider

__all__ = ["DeviceStacking", "Stackers"]

UNSQUEEZE_VERSION = 11
"""The last with its axes as an attribute: from 13 on they are an input, which kernels read on the host."""


class Stackers:
    """Finds how values are stacked on devices.

    Args:
        providers: of the session, in order of preference.
    """

    def __init__(self, providers: Sequence[SessionProvider]) -> None:
        self._by_device = {provider.device: provider for provider in reversed(providers)}

    def can_stack(self, device: OrtDevice, type_string: str | None) -> bool:
        """Whether tensors of a type can be stacked on a device."""
        return self._rows(device, type_string) is not None

    def stacking(self, device: OrtDevice, type_string: str | None, transfers: DataTransferManager) -> DeviceStacking | None:
        """How tensors of a type are stacked on a device, if they can be.

        Args:
            device: where they are.
            type_string: of them.
            transfers: of the session.
        """
        rows = self._rows(device, type_string)
        if rows is None or type_string is None:
            return None
        return DeviceStacking(self._by_device[device], *rows, type_string, transfers)

    def _rows(self, device: OrtDevice, type_string: str | None) -> tuple[KernelCreateInfo, KernelCreateInfo] | None:
        provider = self._by_device.get(device)
        if provider is None or provider.registry is None or type_string is None:
            return None
        unsqueeze = [
            row for row in _rows_of(provider, "Unsqueeze", type_string) if row.kernel_def.since_version <= UNSQUEEZE_VERSION
        ]
        concat = _rows_of(provider, "Concat", type_string)
        return (_newest(unsqueeze), _newest(concat)) if unsqueeze and concat else None


def _rows_of(provider: SessionProvider, op_type: str, type_string: str) -> list[KernelCreateInfo]:
    """A provider's kernels of an operator that take a type."""
    candidates = () if provider.registry is None else provider.registry.candidates("", op_type)
    found = []
    for row in candidates:
        definition = row.kernel_def
        declines = definition.when is not None and definition.when(_info(provider, row, type_string, 1, {})) is not None
        if type_string in definition.type_constraints.get("T", ()) and not declines:
            found.append(row)
    return found


def _newest(rows: Sequence[KernelCreateInfo]) -> KernelCreateInfo:
    return max(rows, key=lambda row: row.kernel_def.since_version)


def _info(
    provider: SessionProvider, row: KernelCreateInfo, type_string: str, inputs: int, attributes: Mapping[str, Any]
) -> KernelInfo:
    definition, argument = row.kernel_def, NodeArg("", type_string)
    return KernelInfo(
        definition.op_type,
        definition.since_version,
        attributes=attributes,
        inputs=(argument,) * inputs,
        outputs=(argument,),
        execution_provider=provider.execution_provider,
    )


class DeviceStacking:
    """See the contract's ``Stacking``.

    Args:
        provider: of the device.
        unsqueeze: its kernel of Unsqueeze.
        concat: its kernel of Concat.
        type_string: of the tensors.
        transfers: of the session.
    """

    def __init__(
        self,
        provider: SessionProvider,
        unsqueeze: KernelCreateInfo,
        concat: KernelCreateInfo,
        type_string: str,
        transfers: DataTransferManager,
    ) -> None:
        self.provider = provider.execution_provider
        self._opened, self._type, self._transfers = provider, type_string, transfers
        self._unsqueeze, self._concat = unsqueeze, concat

    def unsqueezing(self, axis: int) -> Any:
        return self._unsqueeze.create(_info(self._opened, self._unsqueeze, self._type, 1, {"axes": [axis]}))

    def joining(self, count: int, axis: int) -> Any:
        return self._concat.create(_info(self._opened, self._concat, self._type, count, {"axis": axis}))

    def placed(self, array: Array) -> Array:
        return self._transfers.copy(array, CPU_DEVICE, self.provider.device)
