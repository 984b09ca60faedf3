"""Partial evaluation of a trace: values that are known become constants, dead steps are left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array
from ort_sdk.plan import ExecutionPlan
from ort_sdk.run.program.specialisation import Specialisation, is_declared

from .trace import Trace

__all__ = ["FOLD_LIMIT_BYTES", "folded", "has_tensors", "is_host_number", "is_tensor", "nbytes_of", "partially_evaluated"]


FOLD_LIMIT_BYTES = 1 << 22
"""A known value larger than this is computed in each run rather than kept, if something still reads it."""


def partially_evaluated(plan: ExecutionPlan, trace: Trace, fetches: tuple[int, ...]) -> Specialisation:
    """What is left of a trace: known values that are small become constants, steps whose results are not read are dead.

    Args:
        plan: that was traced.
        trace: of one run.
        fetches: values that the caller gets.
    """
    # Roots: a kernel that declares nothing may have side effects, and what is known after a guard depends on it.
    kept = {
        position for position, launched in enumerate(trace.steps) if launched.guard is not None or not is_declared(launched.step)
    }
    wanted = [*fetches, *(index for position in kept for index in trace.steps[position].inputs)]
    constants: dict[int, Array] = {}
    while wanted:
        index = wanted.pop()
        position = trace.made_by.get(index)
        value = trace.values[index]
        if trace.known[index].value_known and (position is None or nbytes_of(value) <= FOLD_LIMIT_BYTES):
            constants[index] = value if index in trace.original else folded(value, is_fetched=index in fetches)
        elif position is not None and position not in kept:
            kept.add(position)
            wanted.extend(trace.steps[position].inputs)
    steps = [trace.steps[position] for position in sorted(kept)]
    kept_bytes = sum(nbytes_of(value) for index, value in constants.items() if index not in trace.original)
    return Specialisation(plan, steps, constants, trace.values, fetches, kept_bytes, expanded_steps=trace.expanded_steps)


def is_tensor(value: Any) -> bool:
    """Whether a value has a shape and an element type."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def is_host_number(value: Any) -> bool:
    """Whether a value is a whole number on the host, of any shape of one element."""
    return isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu"


def has_tensors(value: Any) -> bool:
    """Whether a value is a sequence with tensors in it."""
    return isinstance(value, list) and any(map(is_tensor, value))


def folded(value: Any, *, is_fetched: bool) -> Any:
    """A folded value as the program keeps it: not writable, and not the array the traced run hands to the user."""
    if not isinstance(value, np.ndarray):
        return value
    kept = value.copy() if is_fetched else value.view()
    kept.flags.writeable = False
    return kept


def nbytes_of(value: Any) -> int:
    """Bytes of a tensor, or of those in a sequence."""
    if isinstance(value, list):
        return sum(nbytes_of(element) for element in value)
    return int(getattr(value, "nbytes", 0))
