"""Writers that are compiled tasks: used for arrays large enough to be worth loading them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, Slot
from ort_sdk_cpu.jit.arguments import TaskArguments
from ort_sdk_cpu.platform import libraries

from .writer import Writer

__all__ = ["ACTIVATION_WORK", "MIN_ELEMENTS", "TaskWriter", "are_floats", "is_worth_a_task", "team_for", "threads_for"]

MIN_ELEMENTS = 1 << 9
"""Elements below which NumPy is not much slower, and no compiled kernel is loaded."""
ELEMENTS_PER_THREAD = 1 << 14
"""Elements that take as long as waking a thread up."""

ACTIVATION_WORK = 4
"""Elements of a few instructions each that one of an activation is worth."""
_FLOAT = np.dtype(np.float32)


def is_worth_a_task(elements: int, module: str = "", name: str = "") -> bool:
    """Whether there is a compiler, and an array is large enough, or the task named is at hand anyway."""
    if not elements or not libraries.compiled_kernels().is_usable:
        return False
    return elements >= MIN_ELEMENTS or (bool(name) and _is_at_hand(module, name))


def _is_at_hand(module: str, name: str) -> bool:
    from ort_sdk_cpu.jit.task_code import is_compiled

    return is_compiled(module, name)


def are_floats(arrays: Sequence[Any]) -> bool:
    """Whether all arrays that are there are of float32."""
    return all(array is None or array.dtype == _FLOAT for array in arrays)


def threads_for(work: int, per_thread: int = ELEMENTS_PER_THREAD) -> int:
    """Threads for some work: one more for each ``per_thread``, as many as there are at most.

    Args:
        work: elements of a few instructions each, or whatever ``per_thread`` counts.
        per_thread: how much takes as long as waking a thread up.
    """
    return max(1, min(libraries.thread_count(), work // per_thread))


def team_for(work: int, least: int) -> int:
    """All threads for at least so much work, one for less: for tasks whose threads share one input."""
    return libraries.thread_count() if work >= least else 1


class TaskWriter:
    """A task as a writer of contiguous arrays.

    Args:
        module: name of the task's module, ``<family>.<name>``.
        name: the task's.
        arguments: the task's, with an ``Operand`` for each address of an array that the writer is called with; arrays for
            further addresses, which the caller keeps.
        otherwise: the writer for arrays that are not contiguous.
        threads: how many the task may use.
    """

    def __init__(
        self,
        module: str,
        name: str,
        arguments: TaskArguments,
        otherwise: Writer,
        threads: int = 1,
    ) -> None:
        from ort_sdk_cpu.jit.task import TaskCall

        self._call = TaskCall(module, name, arguments.without_operands(), threads)
        self._operands = arguments.operands()
        self._otherwise = otherwise

    def __call__(self, *arrays: Any) -> None:
        """Write the outputs."""
        call = self._call
        for position, index in self._operands:
            array = arrays[index]
            if array is not None:
                if not array.flags.c_contiguous:
                    self._otherwise(*arrays)
                    return
                call.point(position, array)
            else:
                call.point(position, None)
        call.run()

    def bind_arrays(self, *arrays: HostArray | None) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if one is not contiguous."""
        used = [(position, arrays[index]) for position, index in self._operands]
        if not all(array is None or array.flags.c_contiguous for _, array in used):
            return None
        for position, array in used:
            self._call.point(position, array)
        # The writer, too: it may have memory that the task was pointed at.
        return self._call.bound_call(self, *(array for _, array in used))

    def bind_slots(self, slots: Sequence[Slot]) -> Callable[[], Any] | None:
        """The call on slots: what is fixed is pointed at once; None if that is not contiguous."""
        used = [(position, slots[index]) for position, index in self._operands]
        fixed = [(position, slot.array) for position, slot in used if slot.is_fixed]
        if not all(array is None or array.flags.c_contiguous for _, array in fixed):
            return None
        for position, array in fixed:
            self._call.point(position, array)
        moving = [(position, slot) for position, slot in used if not slot.is_fixed]
        task = self._call

        def call() -> None:
            for position, slot in moving:
                array = slot.array
                if array is not None and not array.flags.c_contiguous:
                    self._otherwise(*(slot.array for slot in slots))
                    return
                task.point(position, array)
            task.run()

        return call
