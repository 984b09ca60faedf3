"""What the arguments of direct convolutions have in common: NHWC data, and an epilogue."""

from __future__ import annotations

from typing import Any

from ort_sdk_cpu.jit.arguments import Counter, Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extent, Extents, reads_if_given, uses_workspace, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT

__all__ = ["POINTED_LATER", "ActivationWords", "Epilogue", "JobCounters", "Operands", "results", "workspace"]


class Operands(TaskArguments):
    """Addresses that all direct convolutions take first."""

    x: Pointer
    """float32 (samples, height, width, channels), unless the task says otherwise."""
    weights: Pointer
    """Packed; see the task."""
    bias: Pointer
    """float32 (outputs); 0 for none."""
    added: Pointer
    """float32, as ``out``: added before the activation; 0 for none."""
    out: Pointer
    """float32 (samples, rows, columns, outputs)."""
    work: Pointer
    """Workspace of all threads, ``work_bytes`` each."""


POINTED_LATER: dict[str, Any] = dict.fromkeys(Operands.own_fields, 0)
"""Operands of a plan, which knows no arrays yet."""


class ActivationWords(TaskArguments):
    """A function of each element."""

    kind: int
    """``ActivationKind``."""
    alpha: float
    beta: float


class Epilogue(TaskArguments):
    """``scale * activation(sum) + shift + last``."""

    activation: int
    """``ActivationKind``."""
    alpha: float
    beta: float
    last: Pointer
    """float32, as the output: added at last; 0 for none."""
    is_scaled: int
    """Whether there are scale and shift."""
    scale: float
    shift: float


class JobCounters(TaskArguments):
    """Counters of work stealing, see ``simd.work_stealing``: all 0 before and afterwards."""

    first: Counter = 0
    """The others are behind it."""
    counter_1: Counter = 0
    counter_2: Counter = 0
    counter_3: Counter = 0
    counter_4: Counter = 0
    counter_5: Counter = 0
    counter_6: Counter = 0
    counter_7: Counter = 0


def results(bias: int, added: int, out: int, last: int, pixels: int, outputs: int) -> Extents:
    """What is written, and what is added before and after the activation, which has the same layout."""
    nbytes = pixels * outputs * FLOAT
    yield reads_if_given(bias, outputs * FLOAT if pixels > 0 else 0)
    yield reads_if_given(added, nbytes)
    yield reads_if_given(last, nbytes)
    yield writes(out, nbytes)


def workspace(at: int, threads: int, thread_bytes: int, used: int) -> Extent:
    """Workspace, of which each thread has some and uses some."""
    return uses_workspace(at, (threads - 1) * thread_bytes + used)
