"""Extents of a sequence's tasks checked against the arrays of a run, which are found by the addresses in the records."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.attention.decode import Rotary
from ort_sdk_cpu.jit.extents.bounds import Memory, check_words, memory_of
from ort_sdk_cpu.jit.extents.declaration import declaration_of
from ort_sdk_cpu.platform.addresses import address_of

__all__ = ["LaunchedTask", "Span", "Spans", "check_tasks", "spans_of"]


class LaunchedTask(NamedTuple):
    """A task as a record has it."""

    module: str
    name: str
    words: Sequence[int]


class Span(NamedTuple):
    """Memory from an address to before another, and whether it may be written."""

    low: int
    high: int
    is_writeable: bool


class Spans:
    """Memory by address, found in logarithmic time: a sequence has a hundred addresses."""

    def __init__(self, spans: Iterable[Span]) -> None:
        ordered = sorted(spans)
        self._lows = [span.low for span in ordered]
        self._farthest = list(itertools.accumulate(ordered, _farther))
        """For each span, the one with the highest end up to it: views of one array overlap."""

    def at(self, address: int) -> Memory | None:
        """What is known of the memory at an address; None if nothing is."""
        index = bisect.bisect_right(self._lows, address) - 1
        if index < 0 or self._farthest[index].high <= address:
            return None
        low, high, is_writeable = self._farthest[index]
        return address - low, high - address, is_writeable


def _farther(first: Span, second: Span) -> Span:
    return first if first.high >= second.high else second


def spans_of(found: Iterable[Any]) -> Iterator[Span]:
    """Memory of arrays, and of those of rotations; None is left out."""
    for each in found:
        if isinstance(each, np.ndarray):
            yield _span_of(each)
        elif isinstance(each, Rotary):
            yield from spans_of((each.cos, each.sin, each.rows))


def _span_of(array: HostArray) -> Span:
    address, (before, behind, is_writeable) = address_of(array), memory_of(array)
    return Span(address - before, address + behind, is_writeable)


def check_tasks(tasks: Iterable[LaunchedTask], threads: int, spans: Iterable[Span]) -> None:
    """Check each task against the memory that its addresses are in.

    Raises:
        ExtentError: one would reach outside of it.
    """
    memory_at = Spans(spans).at
    for task in tasks:
        declaration = declaration_of(task.module, task.name)
        if declaration is None:
            continue
        found = ((position, memory_at(task.words[position])) for position in declaration.pointers)
        memory = {position: each for position, each in found if each is not None}
        check_words(task.module, task.name, task.words, threads, memory)
