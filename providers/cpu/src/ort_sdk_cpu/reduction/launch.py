"""Reductions of float32 as a compiled task, in any layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.task_writer import are_floats, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import Writer

from .arguments.reduce import MODULE, Reduce
from .select import ReduceAlgorithm, ReduceLayout, ReduceOp, ReduceProblem, select_reduce

__all__ = ["ReductionCall", "TaskReduction", "reduction_call", "reduction_writer"]


@dataclass(frozen=True, slots=True)
class TaskReduction:
    """What a task reduces elements to."""

    op: ReduceOp
    factor: float = 1.0
    """Of each element."""
    divisor: float = 1.0
    """Of each result."""
    has_root: bool = False
    """Whether the result is the root of that."""


def reduction_writer(
    reduction: TaskReduction, layout: ReduceLayout, x: HostArray, out: HostArray, otherwise: Writer
) -> Writer | None:
    """A writer for arrays of these layouts; None where a task is not worth loading.

    Args:
        reduction: what is computed.
        layout: of the arrays.
        x: of the shape and layout to expect.
        out: with or without the axes that are reduced.
        otherwise: writes arrays of other layouts.
    """
    call = _call(reduction, layout, x)
    return None if call is None else _ReductionWriter(call, x, out, otherwise)


def reduction_call(reduction: TaskReduction, x: HostArray, axes: Sequence[int], out: HostArray) -> ReductionCall | None:
    """The task for arrays of these layouts; None where it cannot reduce them, or is not worth loading.

    Args:
        reduction: what is computed.
        x: of the shape and layout to expect.
        axes: from 0, that are reduced.
        out: with or without these axes.
    """
    is_float32 = are_floats([x, out])
    _, layout = select_reduce(ReduceProblem(reduction.op, x.shape, x.strides, tuple(axes), out.strides, is_float32))
    return None if layout is None else _call(reduction, layout, x)


def _call(reduction: TaskReduction, layout: ReduceLayout, x: HostArray) -> ReductionCall | None:
    task = f"{reduction.op.value}_{'rows' if layout.algorithm is ReduceAlgorithm.ROWS else 'columns'}"
    return ReductionCall(reduction, layout, task, x.size) if is_worth_a_task(x.size, MODULE, task) else None


class ReductionCall:
    """A reduction of arrays of given layouts. For one thread at a time.

    Args:
        reduction: what is computed.
        layout: of the arrays.
        task: its name.
        elements: of the input.
    """

    def __init__(self, reduction: TaskReduction, layout: ReduceLayout, task: str, elements: int) -> None:
        from ort_sdk_cpu.jit.task import TaskCall

        numbers = (reduction.factor, reduction.divisor, int(reduction.has_root))
        self._call = TaskCall(MODULE, task, Reduce.of_words((0, 0, *layout.words, *numbers)), threads_for(elements))

    def run(self, *arrays: HostArray) -> None:
        """Reduce the first array into the last; keeps neither."""
        self._point(*arrays)
        self._call.run()

    def bind_arrays(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; it keeps them."""
        self._point(*arrays)
        return self._call.bound_call(*arrays)

    def _point(self, x: HostArray, out: HostArray) -> None:
        self._call.point(Reduce.x, x)
        self._call.point(Reduce.out, out)


class _ReductionWriter:
    def __init__(self, call: ReductionCall, x: HostArray, out: HostArray, otherwise: Writer) -> None:
        self._call, self._strides, self._otherwise = call, (x.strides, out.strides), otherwise

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        x, out = arrays[0], arrays[-1]
        if (x.strides, out.strides) == self._strides:
            self._call.run(x, out)
        else:
            self._otherwise(*arrays)

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None for other layouts."""
        x, out = arrays[0], arrays[-1]
        return self._call.bind_arrays(x, out) if (x.strides, out.strides) == self._strides else None
