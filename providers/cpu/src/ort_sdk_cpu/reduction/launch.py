"""Reductions of float32 as a compiled task on arrays as they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.bound import Writer
from ort_sdk_cpu.kernel.task_writer import are_floats, is_worth_a_task, threads_for
from ort_sdk_cpu.memory.strides import Loops

from .arguments.reduce import MODULE, Reduce

__all__ = ["ReductionCall", "TaskReduction", "reduction_call", "reduction_writer"]

KEPT_AXES, REDUCED_AXES = 3, 2
"""That the tasks go over."""
LEAST_ROW = 8
"""Elements next to each other from which on a vector of them is not mostly empty."""
FEW_ELEMENTS = 1 << 9
"""Elements of an array up to which vectors may be, too: a call of NumPy takes longer."""
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class TaskReduction:
    """Which task computes a reduction, and with which numbers."""

    task: str
    factor: float = 1.0
    """Of each element."""
    divisor: float = 1.0
    """Of each result."""
    has_root: bool = False
    """Whether the result is the root of that."""


def reduction_writer(reduction: TaskReduction, x: HostArray, axes: Sequence[int], out: HostArray, otherwise: Writer) -> Writer:
    """A writer for arrays that lie like these; ``otherwise`` where the task cannot do it.

    Args:
        reduction: what is computed.
        x: of the shape and layout to expect.
        axes: from 0, that are reduced.
        out: with or without these axes.
        otherwise: writes any arrays.
    """
    call = reduction_call(reduction, x, axes, out)
    return otherwise if call is None else _ReductionWriter(call, x, out, otherwise)


def reduction_call(reduction: TaskReduction, x: HostArray, axes: Sequence[int], out: HostArray) -> ReductionCall | None:
    """The task for arrays that lie like these; None where it cannot do it. Arguments as for ``reduction_writer``."""
    layout = _layout(x, axes, out)
    if layout is None or not is_worth_a_task(x.size, MODULE, _task_name(reduction, layout)):
        return None
    return ReductionCall(reduction, layout, x.size)


def _task_name(reduction: TaskReduction, layout: _Layout) -> str:
    return f"{reduction.task}_{'rows' if layout.is_rows else 'columns'}"


class ReductionCall:
    """A reduction of arrays of given layouts. For one thread at a time."""

    def __init__(self, reduction: TaskReduction, layout: _Layout, elements: int) -> None:
        from ort_sdk_cpu.jit.task import TaskCall

        numbers = (reduction.factor, reduction.divisor, int(reduction.has_root))
        arguments = Reduce.of_words((0, 0, *layout.sizes, *numbers))
        self._call = TaskCall(MODULE, _task_name(reduction, layout), arguments, threads_for(elements))

    def run(self, *arrays: HostArray) -> None:
        """Reduce the first array into the last; keeps neither."""
        self._point(*arrays)
        self._call.run()

    def fixed(self, *arrays: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same; it keeps them."""
        self._point(*arrays)
        return self._call.kept(*arrays)

    def _point(self, x: HostArray, out: HostArray) -> None:
        self._call.point(Reduce.x, x)
        self._call.point(Reduce.out, out)


@dataclass(frozen=True, slots=True)
class _Layout:
    is_rows: bool
    sizes: tuple[int, ...]
    """As the tasks take them."""


def _layout(x: HostArray, axes: Sequence[int], out: HostArray) -> _Layout | None:
    """Loops over what stays and what goes, each from the outermost in memory to the innermost; None if they are too many."""
    if not x.size or not are_floats([x, out]):
        return None
    order = sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))
    kept = [axis for axis in order if axis not in axes and x.shape[axis] != 1]
    reduced = [axis for axis in order if axis in axes and x.shape[axis] != 1]
    if len(kept) > KEPT_AXES + 2 or len(reduced) > REDUCED_AXES + 3 or not reduced:
        return None
    place = {axis: index for index, axis in enumerate(range(x.ndim) if out.ndim == x.ndim else _left(x.ndim, axes))}
    stays = Loops.over(
        [x.shape[axis] for axis in kept],
        [[x.strides[axis] for axis in kept], [out.strides[place[axis]] for axis in kept]],
    )
    goes = Loops.over([x.shape[axis] for axis in reduced], [[x.strides[axis] for axis in reduced]])
    if any(size != 1 for size in (*stays.sizes[:-KEPT_AXES], *goes.sizes[:-REDUCED_AXES])):
        return None
    in_x, in_out = (steps[-KEPT_AXES:] for steps in stays.strides)
    sizes = (
        *(*stays.sizes[-KEPT_AXES:], *in_x, *in_out),
        *(*goes.sizes[-REDUCED_AXES:], *goes.strides[0][-REDUCED_AXES:]),
    )
    if goes.strides[0][-1] == _FLOAT_BYTES and (goes.sizes[-1] >= LEAST_ROW or x.size <= FEW_ELEMENTS):
        return _Layout(is_rows=True, sizes=sizes)
    return _Layout(is_rows=False, sizes=sizes) if in_x[-1] == in_out[-1] == _FLOAT_BYTES else None


def _left(rank: int, axes: Sequence[int]) -> list[int]:
    return [axis for axis in range(rank) if axis not in axes]


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

    def fixed(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if they lie otherwise."""
        x, out = arrays[0], arrays[-1]
        return self._call.fixed(x, out) if (x.strides, out.strides) == self._strides else None
