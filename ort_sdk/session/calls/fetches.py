"""Fetches: results handed to the caller, chosen by name, in memory that nothing else uses."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, LENT_MEMORY, HostArray, InvalidArgument, OrtDevice, OutOfMemory
from ort_sdk.memory import DataTransferManager
from ort_sdk.plan import Fetch

__all__ = ["HELD_ONCE", "FetchSelection", "bring_to_host", "hand_out"]

_C_CONTIGUOUS = 0x0001
_OWNS_DATA = 0x0004
_WRITEABLE = 0x0400
_READY = _C_CONTIGUOUS | _WRITEABLE
_OWN = _READY | _OWNS_DATA
MAX_HIDDEN_BYTES = 1 << 16
"""Bytes beyond its own that a result may keep alive by being a view of a larger array."""


class FetchSelection:
    """Finds outputs by name.

    Args:
        names: outputs of the model, in order.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._index = {name: index for index, name in enumerate(names)}

    def indices(self, output_names: Sequence[str] | None) -> list[int] | None:
        """Positions of the named outputs; None for all in order.

        Raises:
            TypeError: a bare ``str``, or names that are none.
            InvalidArgument: the model has no such output.
        """
        if not output_names:
            return None
        names = [output_names] if isinstance(output_names, bytes) else list(output_names)
        if isinstance(output_names, str) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"incompatible function arguments: output_names is a sequence of str, got {output_names!r}")
        for name in names:
            if name not in self._index:
                raise InvalidArgument(f"Invalid output name:{name}; the model's outputs are {self.names}")
        return [self._index[name] for name in names]


def bring_to_host(
    results: list[Any], fetches: Sequence[Fetch], wanted: Iterable[int] | None, transfers: DataTransferManager
) -> None:
    """Copy results that are on devices to the host, in place, with one wait for those of one device.

    Args:
        results: one value per fetch, where the plan leaves it.
        fetches: the plan's.
        wanted: positions of those to be copied; None for all.
        transfers: of the session.
    """
    on_devices: dict[OrtDevice, list[int]] = {}
    for position in dict.fromkeys(range(len(fetches)) if wanted is None else wanted):
        if fetches[position].device != CPU_DEVICE:
            on_devices.setdefault(fetches[position].device, []).append(position)
    for device, positions in on_devices.items():
        copied = transfers.copy_all([results[position] for position in positions], device, [None] * len(positions))
        for position, value in zip(positions, copied, strict=True):
            results[position] = value


def hand_out(values: list[Any]) -> list[Any]:
    """Make every array writable, contiguous and nobody else's, in place.

    An array that only this list holds, of memory that only that array holds, is handed out as it is. Anything else may be
    a feed, a weight, a buffer of a program, something a kernel keeps, or another result: it is copied.

    Args:
        values: host values; the caller keeps no other reference to them.

    Raises:
        OutOfMemory: there is no memory for a copy.
    """
    for position in range(len(values)):
        kind = type(values[position])
        if kind is np.ndarray:
            # Asked here, since a call would take longer than what mostly is the answer: its memory is its own.
            if sys.getrefcount(values[position]) > HELD_ONCE or (
                values[position].flags.num & _OWN != _OWN and not _is_sole_view(values, position)
            ):
                values[position] = _own_copy(values[position])
        elif isinstance(values[position], np.ndarray):
            values[position] = np.array(values[position])
        elif kind is list:
            if not _is_sole_list(values, position):
                values[position] = _copied_list(values[position])
        elif kind is dict:
            values[position] = dict(values[position])
    return values


def _own_copy(array: HostArray) -> HostArray:
    """A copy; of a view that repeats a few elements it may be gigantic."""
    try:
        return array.copy(order="C")
    except MemoryError as error:
        raise OutOfMemory(
            f"an output of shape {list(array.shape)} and {array.dtype} does not fit into memory: {error}"
        ) from error


def _holders(values: list[Any], position: int) -> int:
    return sys.getrefcount(values[position])


def _copied_list(value: list[Any]) -> list[Any]:
    return [element.copy(order="C") if isinstance(element, np.ndarray) else _copied(element) for element in value]


def _copied(element: Any) -> Any:
    return dict(element) if isinstance(element, dict) else element


def _is_sole_list(values: list[Any], position: int) -> bool:
    """Whether a list, and maps that are all its elements, are held here only."""
    elements = values[position]
    if sys.getrefcount(elements) > _LIST_HELD_ONCE:
        return False
    for element in elements:  # noqa: SIM110 - counts references, which a generator would add to
        if type(element) is not dict or sys.getrefcount(element) > _LIST_HELD_ONCE:
            return False
    return True


def _element_references(elements: list[Any]) -> int:
    """References to a list's only element, as a loop over it sees them."""
    for element in elements:
        return sys.getrefcount(element)
    return 0


def _root_references(values: list[Any], position: int) -> int:
    """References to the object whose memory an array is, as this function sees them."""
    root = values[position].base
    return sys.getrefcount(root)


HELD_ONCE = _holders([object()], 0)
"""References to an object that only a list holds, as ``sys.getrefcount`` of the list's element counts them."""
_LIST_HELD_ONCE = _element_references([object()])
_ROOT_HELD_ONCE = _root_references([np.empty((1, 1)).reshape(1)], 0)


def _is_sole_view(values: list[Any], position: int) -> bool:
    """Whether an array is the only view of memory that is not its own, and can be handed out as it is."""
    if values[position].flags.num & _READY != _READY or _root_references(values, position) > _ROOT_HELD_ONCE:
        return False
    root = values[position].base
    if type(root) is not np.ndarray:
        return getattr(type(root), LENT_MEMORY, False)
    return bool(root.flags.num & _OWNS_DATA) and root.nbytes <= 2 * values[position].nbytes + MAX_HIDDEN_BYTES
