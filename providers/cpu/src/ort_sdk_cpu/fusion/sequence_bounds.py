"""Tasks of a sequence checked against the arrays of a run: their records have nothing but addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.addresses import address_of
from ort_sdk_cpu.extents.bounds import Memory, check_words, memory_of
from ort_sdk_cpu.extents.declaration import declaration_of
from ort_sdk_cpu.kernels.cached_attention import Rotary

__all__ = ["LaunchedTask", "Span", "check_tasks", "spans_of"]


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

    def seen_from(self, address: int) -> Memory | None:
        """What is known of the memory at an address; None if it is elsewhere."""
        is_within = self.low <= address < self.high
        return (address - self.low, self.high - address, self.is_writeable) if is_within else None


def spans_of(found: Iterable[Any]) -> Iterator[Span]:
    """Where arrays, and those of rotations, lie; None is left out."""
    for each in found:
        if isinstance(each, np.ndarray):
            yield _span_of(each)
        elif isinstance(each, Rotary):
            yield from spans_of((each.cos, each.sin, each.rows))


def _span_of(array: HostArray) -> Span:
    address, (before, behind, is_writeable) = address_of(array), memory_of(array)
    return Span(address - before, address + behind, is_writeable)


def check_tasks(tasks: Iterable[LaunchedTask], threads: int, spans: Sequence[Span]) -> None:
    """Check each task against the memory that its addresses are in.

    Raises:
        ExtentError: one would reach outside of it.
    """
    for task in tasks:
        declaration = declaration_of(task.module, task.name)
        if declaration is None:
            continue
        memory: dict[int, Memory] = {}
        for place in declaration.pointers:
            address = task.words[place]
            found = [seen for seen in (span.seen_from(address) for span in spans) if seen is not None]
            if found:
                memory[place] = max(found, key=lambda seen: seen[1])
        check_words(task.module, task.name, task.words, threads, memory)
