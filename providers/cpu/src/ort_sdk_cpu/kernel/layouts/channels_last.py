"""What kernels on channels-last data share: which call for which arrays, and what to do where there is none."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, OpKernel, Slot
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.memory.workspace import workspace_of

from .call import LayoutCall
from .memory import empty_channels_last, is_channels_last, layout_of

__all__ = ["ArraysCall", "Call", "ChannelsLastKernel", "readable"]

KEPT_CALLS = 16
"""Calls for different shapes that a thread keeps per kernel, when it runs step by step."""
FEW_SHAPES = 2
"""Shapes for which calls are made. Where more are seen, each run may bring another, and making a call takes longer than most."""

Call = Callable[[], Any]


class ArraysCall(Protocol):
    """Computes on arrays of given layouts. For one thread at a time."""

    def run(self, *arrays: HostArray) -> None:
        """Compute; the arrays, the output last, are not kept."""

    def bind_arrays(self, *arrays: HostArray) -> Call:
        """The call on arrays that stay the same; it keeps them."""


class ChannelsLastKernel(OpKernel):
    """A node computed by something that wants (N, C, *spatial) in memory as (N, *spatial, C), and leaves its result so.

    Args:
        info: the node.
        fallback: computes the node where that does not.
    """

    binds_any_layout = True
    _used: Any = None
    """Name of the algorithm used last, or the fallback."""
    _algorithm_of_fallback: str | None = None
    """How the fallback computes step by step."""
    _input_rule: Any = None
    """What the node's inputs have to be; kernels of several nodes have none of their own."""

    def __init__(self, info: KernelInfo, fallback: Any) -> None:
        self._fallback = fallback
        self._input_rule = getattr(fallback, "input_rule", None)
        self.deterministic = fallback.deterministic
        self.shape_inputs = fallback.shape_inputs
        self.contents_from_shapes = fallback.contents_from_shapes
        self.workspace = workspace_of(info)
        self._calls = threading.local()
        self._results = ResultAllocator()
        self._varies = False
        """Whether shapes vary, and the kernel needs nothing made for them."""

    @property
    def algorithm(self) -> str | None:
        """The algorithm used or bound last; None before shapes are known, and of kernels that have one only."""
        used = self._used
        return used if used is None or isinstance(used, str) else getattr(used, "algorithm", None)

    # What a kernel says

    def output_shape(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """Shape of the output, if it shall be computed here; None leaves it to the fallback."""
        raise NotImplementedError

    def output_dtype(self, inputs: Sequence[Any]) -> np.dtype[Any]:
        """Type of the output's elements."""
        dtype: np.dtype[Any] = inputs[0].dtype
        return dtype

    def operands(self, inputs: Sequence[Any]) -> list[HostArray]:
        """The inputs a call reads, in the order it takes them."""
        raise NotImplementedError

    def make_call(self, inputs: Sequence[Any], operands: Sequence[HostArray], out: HostArray) -> ArraysCall | None:
        """The call that reads operands like these and writes an output like this; None if there is none that is fast."""
        raise NotImplementedError

    def write_varying(self, inputs: Sequence[Any], out: HostArray) -> bool:
        """Compute without anything made for these shapes; returns whether the kernel can."""
        return False

    def finish(self, inputs: Sequence[Any], out: HostArray) -> None:
        """What is left to do to an output in place."""

    has_finish = False
    """Whether ``finish`` does something."""

    is_packed = False
    """Whether an input was packed, so that the fallback cannot read it."""

    def plain_inputs(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs as the fallback wants them."""
        return inputs

    # Step by step

    def compute(self, *inputs: Any) -> Any:
        """A new array; channels last unless the fallback computed it."""
        result = self.computed(inputs)
        return self._computed_otherwise(inputs) if result is None else result

    def _computed_otherwise(self, inputs: Sequence[Any]) -> Any:
        self._used = self._algorithm_of_fallback
        return self._fallback.compute(*self.plain_inputs(inputs))

    def _check(self, inputs: Sequence[Any]) -> None:
        """Refuse inputs that the operator does not allow: those beside X are not looked at again."""
        if self._input_rule is not None:
            self._input_rule.check(inputs)

    def computed(self, inputs: Sequence[Any]) -> HostArray | None:
        """A new array; None if the fallback has to compute it."""
        self._check(inputs)
        shape = self.output_shape(inputs)
        if shape is None:
            return None
        out = self._new_output(shape, self.output_dtype(inputs))
        return out if self.write(inputs, out) else None

    def _new_output(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        if dtype != np.float32:
            return empty_channels_last(shape, dtype)
        rank = len(shape)
        return self._results.empty((shape[0], *shape[2:], shape[1])).transpose(0, rank - 1, *range(1, rank - 1))

    def write(self, inputs: Sequence[Any], out: HostArray) -> bool:
        """Compute into an output; returns whether this can."""
        if self._varies and self.write_varying(inputs, out):
            self.finish(inputs, out)
            return True
        operands = [readable(array) for array in self.operands(inputs)]
        key = (*((array.shape, array.strides, array.dtype) for array in operands), out.strides)
        calls: dict[Any, tuple[ArraysCall | None, Any]] = self._calls.__dict__
        if key not in calls:
            if len(calls) >= FEW_SHAPES and self.write_varying(inputs, out):
                self._varies = True
                self.finish(inputs, out)
                return True
            while len(calls) >= KEPT_CALLS:
                del calls[next(iter(calls))]
            call = self.make_call(inputs, operands, out)
            calls[key] = (call, self._used)
        call, self._used = calls[key]
        if call is None:
            return False
        call.run(*operands, out)
        self.finish(inputs, out)
        return True

    # In programs

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Call:
        """A call that reads the inputs' slots and writes into the output's array, of any layout."""
        if not all(slot.is_fixed for slot in (*inputs, outputs[0])):
            return self._slot_call(inputs, outputs[0], self._other(inputs, outputs))
        arrays = [slot.array for slot in inputs]
        self._check(arrays)
        return self.bind_arrays(arrays, outputs[0].array) or self._other(inputs, outputs)

    def bind_arrays(self, inputs: Sequence[Any], out: HostArray) -> Call | None:
        """The call on arrays that stay the same; None if the fallback has to compute it."""
        if self.output_shape(inputs) is None:
            return None
        operands = self.operands(inputs)
        copies = [readable(array) for array in operands]
        call = self.make_call(inputs, copies, out)
        if call is None:
            return None
        if any(copy is not array for copy, array in zip(copies, operands, strict=True)):
            return functools.partial(self.write, inputs, out)
        return self.completed(call.bind_arrays(*operands, out), inputs, operands, out)

    def completed(self, run: Call, inputs: Sequence[Any], _operands: Sequence[HostArray], out: HostArray) -> Call:
        """A call on arrays that stay, with what has to be done before it or behind it."""
        if not self.has_finish:
            return run

        def run_and_finish() -> None:
            run()
            self.finish(inputs, out)

        run_and_finish.copy_count = getattr(run, "copy_count", 0)  # type: ignore[attr-defined]
        return run_and_finish

    def _slot_call(self, inputs: Sequence[Slot], output: Slot, other: Call) -> Call:
        """A call on whatever is in the slots; their shapes stay, so that the first call shows who computes them."""
        is_known = is_own = False
        aimed: _AimedCall | None = None

        def call() -> None:
            nonlocal is_known, is_own, aimed
            if aimed is not None and aimed():
                return
            arrays = [slot.array for slot in inputs] if is_own or not is_known else []
            is_first = not is_known
            if is_first:
                self._check(arrays)
                is_known, is_own = True, self.output_shape(arrays) is not None
            if not is_own or not self.write(arrays, output.array):
                other()
            elif is_first:
                aimed = self._aimed(inputs, arrays, output)

        return call

    def _aimed(self, inputs: Sequence[Slot], arrays: Sequence[Any], output: Slot) -> _AimedCall | None:
        """The call on slots that hold arrays like these, without copies of any; None if it takes more than that."""
        operands = self.operands(arrays)
        if self.has_finish or self._varies or any(readable(array) is not array for array in operands):
            return None
        call = self.make_call(arrays, operands, output.array)
        varying = [slot for slot in (*inputs, output) if not slot.is_fixed and slot.array is not None]
        slots, used = {id(slot.array): slot for slot in varying}, (*operands, output.array)
        positions = [position for position, array in enumerate(used) if id(array) in slots]
        if not isinstance(call, LayoutCall) or not len(positions) == len(slots) == len(varying):
            return None
        run = call.aimed(positions, *used)
        return None if run is None else _AimedCall(run, [slots[id(used[position])] for position in positions])

    def _other(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Call:
        """The fallback's call. It is bound only if all is as it wants it."""
        output = outputs[0]
        is_row_major = not output.is_fixed or output.array.flags.c_contiguous
        if is_row_major and not self.is_packed and hasattr(self._fallback, "bind"):
            call: Call = self._fallback.bind(inputs, outputs)
            self._used = self._fallback
            return call

        def compute() -> None:
            np.copyto(output.array, self._computed_otherwise([slot.array for slot in inputs]))

        return compute


class _AimedCall:
    """A call on the arrays of slots, as long as their layouts stay.

    Args:
        run: takes the arrays.
        slots: which hold them now.
    """

    def __init__(self, run: Callable[..., None], slots: Sequence[Slot]) -> None:
        self._run, self._slots = run, slots
        self._strides = [slot.array.strides for slot in slots]

    def __call__(self) -> bool:
        """Compute, if it can."""
        arrays = [slot.array for slot in self._slots]
        for array, strides in zip(arrays, self._strides, strict=True):
            if array.strides != strides or not array.flags.aligned:
                return False
        self._run(*arrays)
        return True


def readable(array: HostArray) -> HostArray:
    """The array, or a copy of it whose layout can be described."""
    if array.flags.aligned and (array.flags.c_contiguous or is_channels_last(array)):
        return array
    return array if layout_of(array) is not None else np.array(array, order="C")
