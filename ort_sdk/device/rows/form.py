"""The form of a row kernel: which part of the rows a lane computes, chosen by the class of the device."""

from __future__ import annotations

from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.device_class import DeviceClass

from .space import RowSpace

__all__ = ["RowForm", "row_form"]

LEAST_VECTOR = 4
"""Elements from which on a vector is worth its tail."""
LANE_ELEMENTS = 8192
"""Elements that a processor's lane computes at least, so that starting it takes no time."""
SIDE_BY_SIDE = 4
"""Vectors across rows that a processor reduces together."""
CHUNK_ELEMENTS = 16384
"""Elements of a part of a long row at least, on a processor."""
LEAST_LANE_ELEMENTS, MOST_LANE_ELEMENTS, MOST_CHUNKS = 16, 64, 1024
"""Elements of a part of a long row for each lane of a group, and parts."""


@dataclass(frozen=True, slots=True)
class RowForm:
    """Where the work goes."""

    space: RowSpace
    width: int = 1
    """Elements of a vector."""
    is_across: bool = False
    """Whether a vector has one element of each of several rows, and not several of one."""
    vectors: int = 1
    """Vectors of neighbouring rows that are reduced side by side, so that memory is read in longer pieces."""
    rows_per_lane: int = 1
    """Rows, or vectors of rows, that a processor's lane goes through one by one."""
    lanes: int = 1
    """Of a work-group."""
    row_lanes: int = 1
    """Lanes of a row."""
    chunks: int = 1
    """Parts of a row that are reduced on their own."""
    chunk: int = 0
    """Size of a part: steps along the first axis of a row on a processor, else elements."""
    is_group: bool = False
    """Whether lanes of a work-group share rows, instead of each having its own to itself."""


def row_form(space: RowSpace, device: DeviceClass, *, takes_vectors: bool, may_split: bool) -> RowForm:
    """The form for a space.

    Args:
        space: of the rows; it has elements.
        device: that computes.
        takes_vectors: whether all texts can be computed on vectors of float32.
        may_split: whether a row may be reduced in parts that another launch combines.
    """
    if device.is_cpu:
        return _processor_form(space, device, takes_vectors=takes_vectors, only_reduces=may_split)
    return _group_form(space, device, may_split=may_split)


def _processor_form(space: RowSpace, device: DeviceClass, *, takes_vectors: bool, only_reduces: bool) -> RowForm:
    width, vectors, is_across = 1, 1, False
    takes_vectors = takes_vectors and device.vector_width > 1
    if takes_vectors and space.is_dense_along and space.inner[-1] >= LEAST_VECTOR:
        width = _power_below(space.inner[-1], device.vector_width)
    elif takes_vectors and space.is_dense_across and space.outer[-1] >= LEAST_VECTOR:
        width, is_across = _power_below(space.outer[-1], device.vector_width), True
        if only_reduces and space.outer[-1] % (SIDE_BY_SIDE * width) == 0:
            vectors = SIDE_BY_SIDE
    blocks = space.rows // space.outer[-1] * -(-space.outer[-1] // (width * vectors)) if is_across else space.rows
    work = space.count * (width * vectors if is_across else 1)
    per_lane = max(1, min(LANE_ELEMENTS // work, blocks // (4 * device.units)))
    chunks = 1
    if only_reduces and blocks < 2 * device.units:
        chunks = max(1, min(-(-4 * device.units // blocks), work // CHUNK_ELEMENTS, space.inner[0]))
    chunk = _rounded(-(-space.inner[0] // chunks), width if len(space.inner) == 1 else 1)
    return RowForm(space, width, is_across, vectors, per_lane, chunks=-(-space.inner[0] // chunk), chunk=chunk)


def _group_form(space: RowSpace, device: DeviceClass, *, may_split: bool) -> RowForm:
    if space.is_dense_across and not space.is_dense_along:
        row_lanes = 1
    else:
        row_lanes, most = 1, device.row_lanes(space.count)
        while row_lanes < most and row_lanes * 2 < space.count:
            row_lanes *= 2
    lanes = max(row_lanes, device.lanes)
    while lanes > row_lanes and lanes // row_lanes >= 2 * space.rows:
        lanes //= 2
    groups = -(-space.rows * row_lanes // lanes)
    chunks = 1
    if may_split:
        wanted = -(-4 * device.units // groups) if groups < 2 * device.units else 1
        chunks = min(wanted, max(1, space.count // (row_lanes * LEAST_LANE_ELEMENTS)))
        # a lane adds its elements one by one
        chunks = min(max(chunks, -(-space.count // (row_lanes * MOST_LANE_ELEMENTS))), MOST_CHUNKS)
    chunk = -(-space.count // chunks)
    return RowForm(space, lanes=lanes, row_lanes=row_lanes, chunks=-(-space.count // chunk), chunk=chunk, is_group=True)


def _power_below(size: int, most: int) -> int:
    return int(min(1 << (size.bit_length() - 1), most))


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step
