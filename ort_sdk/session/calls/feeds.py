"""Feeds: what a caller gives → one value per feed of the plan, checked as ONNX Runtime checks it.

The common case, an array of the declared type with a fitting shape, passes with a handful of comparisons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import CPU_DEVICE, Array, Fail, InvalidArgument, OrtDevice, tensor_type_element
from ort_sdk.api.data_classes import dataclass
from ort_sdk.memory import DataTransferManager
from ort_sdk.plan import Feed
from ort_sdk.session.values.ort_value import OrtValue

from .feed_conversion import Converter, are_texts, converter

__all__ = ["FeedReader"]

_OBJECT = np.dtype(object)
_C_CONTIGUOUS_AND_ALIGNED = 0x0001 | 0x0100
"""Bits of ``ndarray.flags.num``."""


@dataclass(slots=True)
class _Check:
    """What an array must be to pass as it is."""

    feed: Feed
    convert: Converter
    dtype: np.dtype[Any] | None
    """None for inputs that are no tensors."""
    rank: int | None
    shape: tuple[int, ...] | None
    """Shape, if all sizes are fixed."""
    sizes: tuple[tuple[int, int], ...]
    """(axis, size) of the sizes that are fixed."""
    is_optional: bool
    is_tensor: bool
    """Of numbers or of strings."""

    @property
    def fast_dtype(self) -> np.dtype[Any] | None:
        """The type of arrays that may pass without a conversion."""
        return _OBJECT if self.feed.type == "tensor(string)" else self.dtype

    @property
    def may_be_absent(self) -> bool:
        return self.is_optional or self.feed.has_default


class FeedReader:
    """Reads the feeds of one session.

    Args:
        feeds: the plan's.
        transfers: copies to other devices.
    """

    def __init__(self, feeds: Sequence[Feed], transfers: DataTransferManager) -> None:
        self._transfers = transfers
        self._checks = [_check(feed) for feed in feeds]
        self._names = frozenset(feed.name for feed in feeds)
        self._required = [check.feed.name for check in self._checks if not check.may_be_absent]
        self._fast = [(check.feed.name, check.fast_dtype, check.shape, check.rank, check.sizes) for check in self._checks]
        self._elsewhere = [
            (position, check.feed.device) for position, check in enumerate(self._checks) if check.feed.device != CPU_DEVICE
        ]
        """Feeds that the plan does not want on the host, and where."""

    def read(self, input_feed: Mapping[str, Any]) -> list[Array]:
        """Values in the order of the plan's feeds, each on the device the plan wants; None for one left at its default.

        Raises:
            InvalidArgument: an unknown name, a missing input, a wrong type, rank or size.
            Fail: None for an input that must be given.
        """
        values = self._as_they_are(input_feed)
        if values is None:
            return self._read_slowly(input_feed)
        if len(values) != len(input_feed):
            self._check_names(input_feed)
        return self._where_wanted(values)

    def _as_they_are(self, input_feed: Mapping[str, Any]) -> list[Array] | None:
        """Host arrays in the order of the plan's feeds; None if one of them needs a longer look."""
        values: list[Array] = []
        ndarray = np.ndarray
        try:
            for name, dtype, shape, rank, sizes in self._fast:
                value = input_feed[name]
                if (
                    type(value) is not ndarray
                    or (value.dtype is not dtype and (dtype is None or value.dtype != dtype))
                    or value.flags.num & _C_CONTIGUOUS_AND_ALIGNED != _C_CONTIGUOUS_AND_ALIGNED
                    or (value.shape != shape and (shape is not None or not _fits(value, rank, sizes)))
                    or (dtype is _OBJECT and not are_texts(value))
                ):
                    return None
                values.append(value)
        except (LookupError, TypeError, ValueError):
            # A missing name, or no mapping at all.
            return None
        return values

    def _where_wanted(self, values: list[Array]) -> list[Array]:
        """Host arrays, each on the device the plan wants, in the same list."""
        for position, device in self._elsewhere:
            values[position] = self._transfers.copy(values[position], CPU_DEVICE, device)
        return values

    def read_values(self, given: Mapping[str, OrtValue]) -> list[Array]:
        """The same for bound values, of which missing ones are an error of the run."""
        on_host = {name: value.value for name, value in given.items() if type(value) is OrtValue and value.device is CPU_DEVICE}
        values = self._as_they_are(on_host)
        if values is not None and len(values) == len(given):
            return self._where_wanted(values)
        if len(on_host) == len(given) == len(self._fast):
            self._check_given(given)
            return self.read(on_host)
        return [
            self._on_device(array, source, check)
            for check, (array, source) in zip(self._checks, self.converted(given), strict=True)
        ]

    def converted(self, given: Mapping[str, OrtValue]) -> list[tuple[Array, OrtDevice]]:
        """Bound values in the order of the plan's feeds, checked, each where it is, with its device."""
        self._check_given(given)
        # No comprehension over what is given: the traceback of an error would keep it.
        names = [check.feed.name for check in self._checks]
        return list(map(self._converted, self._checks, map(given.get, names)))

    def _check_given(self, given: Mapping[str, OrtValue]) -> None:
        self._check_names(given)
        for name in self._required:
            if name not in given:
                raise Fail(f"Missing Input: {name}")

    def check_required(self, names: Sequence[str]) -> None:
        """Refuse a call that leaves out an input.

        Raises:
            InvalidArgument: names those missing.
        """
        missing = [name for name in self._required if name not in names]
        if missing:
            raise InvalidArgument(f"Required inputs ({missing}) are missing from input feed ({list(names)}).")

    def _read_slowly(self, input_feed: Mapping[str, Any]) -> list[Array]:
        if not isinstance(input_feed, Mapping):
            raise TypeError(f"input_feed must be a dictionary of name → value, got {type(input_feed).__name__}")
        self.check_required(list(input_feed))
        self._check_names(input_feed)
        return [self._value(check, input_feed.get(check.feed.name)) for check in self._checks]

    def _check_names(self, names: Mapping[str, Any]) -> None:
        for name, value in names.items():
            if not isinstance(name, str):
                raise TypeError(f"incompatible function arguments: names of inputs are str, got {name!r}")
            if name not in self._names and value is not None:
                raise InvalidArgument(f"Invalid input name: {name}; the model's inputs are {sorted(self._names)}")

    def _value(self, check: _Check, value: Any) -> Array:
        if isinstance(value, OrtValue):
            value.wait()
        return self._on_device(*self._converted(check, value), check)

    def _converted(self, check: _Check, value: Any) -> tuple[Array, OrtDevice]:
        """A value of the declared type, and where it is."""
        if value is None:
            if not check.may_be_absent:
                raise Fail(f"Missing Input: {check.feed.name}: None was fed, and the input is neither optional nor has a default")
            return None, check.feed.device
        converted = check.convert(value)
        source = value.device if isinstance(value, OrtValue) and converted is value.value else CPU_DEVICE
        if check.is_tensor and converted is not None:
            shape = tuple(value.shape()) if isinstance(value, OrtValue) else converted.shape
            check_shape(check.feed.name, shape, check.feed.shape)
        return converted, source

    def _on_device(self, array: Array, source: OrtDevice, check: _Check) -> Array:
        target = check.feed.device
        return array if source is target or source == target else self._transfers.copy(array, source, target)


def _fits(value: Any, rank: int | None, sizes: tuple[tuple[int, int], ...]) -> bool:
    shape = value.shape
    if rank is None:
        return True
    if len(shape) != rank:
        return False
    for axis, size in sizes:  # noqa: SIM110 - a generator costs more than the loop
        if shape[axis] != size:
            return False
    return True


def check_shape(name: str, shape: tuple[int, ...], expected: Sequence[int | str | None] | None, what: str = "input") -> None:
    """Compare a shape with a declared one. As in ONNX Runtime, one that is declared to have no dimensions may have some.

    Raises:
        InvalidArgument: another rank, or sizes that differ; says all of them.
    """
    if not expected:
        return
    advice = "Please fix either the inputs/outputs or the model."
    if len(shape) != len(expected):
        raise InvalidArgument(f"Invalid rank for {what}: {name} Got: {len(shape)} Expected: {len(expected)} {advice}")
    wrong = [
        f" index: {axis} Got: {got} Expected: {size}"
        for axis, (got, size) in enumerate(zip(shape, expected, strict=True))
        if isinstance(size, int) and got != size
    ]
    if wrong:
        lines = "\n".join(wrong)
        raise InvalidArgument(f"Got invalid dimensions for {what}: {name} for the following indices\n{lines}\n {advice}")


def _check(feed: Feed) -> _Check:
    element_type = tensor_type_element(feed.type) if feed.type else None
    shape = feed.shape or None
    fixed = shape is not None and all(isinstance(size, int) for size in shape)
    return _Check(
        feed=feed,
        convert=converter(feed.type, feed.name),
        dtype=None if element_type is None or element_type.numpy_dtype.hasobject else element_type.numpy_dtype,
        rank=None if shape is None else len(shape),
        shape=tuple(size for size in shape or () if isinstance(size, int)) if fixed else None,
        sizes=tuple((axis, size) for axis, size in enumerate(shape or ()) if isinstance(size, int)),
        is_optional=bool(feed.type and feed.type.startswith("optional")),
        is_tensor=element_type is not None,
    )
