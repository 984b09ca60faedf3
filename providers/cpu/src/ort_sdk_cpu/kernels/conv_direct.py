"""Convolutions' tasks called straight on a run's arrays: for shapes that were never seen before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_sdk.api import HostArray

if TYPE_CHECKING:
    from ort_sdk_cpu.machine_code import TaskCall

    from .scratch import Scratch

__all__ = ["as_channels_last", "lies_channels_last", "run_on"]

_FLOAT = np.dtype(np.float32)
_TO_LAST = {rank: (0, *range(2, rank), 1) for rank in range(3, 6)}


def lies_channels_last(array: HostArray) -> bool:
    """Whether (N, C, *spatial) lies in memory as (N, *spatial, C)."""
    return array.transpose(_TO_LAST[array.ndim]).flags.c_contiguous


def as_channels_last(array: HostArray) -> HostArray:
    """(N, C, *spatial) that lies in memory as (N, *spatial, C): the array or a copy."""
    if lies_channels_last(array):
        return array
    rank = array.ndim
    return np.array(array.transpose(0, *range(2, rank), 1), _FLOAT, order="C").transpose(0, rank - 1, *range(1, rank - 1))


def run_on(arrays: Sequence[tuple[int, HostArray | None]], made: tuple[TaskCall, int], work_place: int, scratch: Scratch) -> None:
    """Run a task once.

    Args:
        arrays: place of an argument, and the array there, which has to lie as the task wants it; None for address 0. Places that
            are not named have address 0, too.
        made: the task with its sizes, and bytes of working memory.
        work_place: where it takes the address of that memory.
        scratch: working memory.
    """
    call, work_bytes = made
    for place, array in arrays:
        call.point(place, array)
    if work_bytes:
        call.set(work_place, scratch.address("task", work_bytes))
    call.run()
