"""Casts into a given output: by NumPy, and of halves by a compiled task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.addresses import address_of
from ort_sdk_cpu.instruction_set import InstructionSet, instruction_set

from .any_layout import AnyLayoutKernel
from .bindable import MakeWriter, Writer, bindable, copied, made_by
from .direct_kernel import directly
from .recycled import ResultMemory
from .task_writer import TaskWriter, is_worth_a_task, threads_for

__all__: list[str] = []

MODULE = "conversion"
_TASKS = {
    (TensorElementType.FLOAT16, TensorElementType.FLOAT): "from_halves",
    (TensorElementType.FLOAT, TensorElementType.FLOAT16): "to_halves",
}
_compute_type = NumpyNamespace().compute_type


@bindable("Cast", any_type=True, elementwise=True)
def cast(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Conversions that NumPy does by C's rules alone; those of floats to integers stay the shared set's."""
    source, target = info.input_element_type(0), info.output_element_type(0)
    if source is None or target is None:
        return None
    task = _task(info)
    if task is not None:
        return _of_halves(task, compute)
    if target is TensorElementType.FLOAT16 and source.numpy_dtype.kind in "biu":
        return lambda _inputs, _outputs: copied(compute)
    if target is TensorElementType.BOOL and _compute_type(source) is source:
        return lambda _inputs, _outputs: lambda x, out: np.not_equal(x, 0, out=out)
    is_numpys = _compute_type(source) is source and _compute_type(target) is target
    if not is_numpys or (target.numpy_dtype.kind != "f" and source.numpy_dtype.kind == "f"):
        return None
    return lambda _inputs, _outputs: lambda x, out: np.copyto(out, x, casting="unsafe")


def _task(info: KernelInfo) -> str | None:
    """The task of a node; None where there is none, or the processor has no instruction for it."""
    source, target = info.input_element_type(0), info.output_element_type(0)
    task = None if source is None or target is None else _TASKS.get((source, target))
    return task if task is not None and instruction_set() >= InstructionSet.AVX2 else None


def _of_halves(task: str, compute: Any) -> MakeWriter:
    otherwise = copied(compute)

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        size = inputs[0].size
        if not is_worth_a_task(size, MODULE, task):
            return otherwise
        return TaskWriter(MODULE, task, (size,), (0, 1), otherwise, threads_for(size))

    return make


class _CastKernel(AnyLayoutKernel):
    """One that converts arrays of any shape by the task, too."""

    def __init__(self, kernel: Any, make_writer: MakeWriter, call: Callable[..., Any]) -> None:
        super().__init__(kernel, make_writer, is_elementwise=True)
        self._compute = directly(call, self._compute)


@made_by("Cast")
def of_any_shape(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> AnyLayoutKernel | None:
    """The kernel of a node that converts halves."""
    task = _task(info)
    if task is None:
        return None
    results, is_widened = ResultMemory(), task == "from_halves"

    def call(x: HostArray) -> Any:
        if not x.flags.c_contiguous or not is_worth_a_task(x.size, MODULE, task):
            return NotImplemented
        from ort_sdk_cpu.machine_code import task_function

        out = results.empty(x.shape) if is_widened else np.empty(x.shape, np.float16)
        task_function(MODULE, task, "qqq")(threads_for(x.size), address_of(x), address_of(out), x.size)
        return out

    return _CastKernel(kernel, make_writer, call)
