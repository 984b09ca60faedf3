"""Casts into a given output: by NumPy, and between float16 and float32 by a compiled task."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.bindable import bindable, kernel_maker
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.eager import with_fallback
from ort_sdk_cpu.kernel.layouts.any_layout import AnyLayoutKernel
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from .arguments.cast import MODULE, Cast

__all__: list[str] = []

_TASKS = {
    (TensorElementType.FLOAT16, TensorElementType.FLOAT): "f16_to_f32",
    (TensorElementType.FLOAT, TensorElementType.FLOAT16): "f32_to_f16",
}
_INTEGERS = (TensorElementType.INT8, TensorElementType.UINT8, TensorElementType.INT32, TensorElementType.INT64)
_TO_INTEGERS = frozenset(itertools.product((TensorElementType.FLOAT, TensorElementType.DOUBLE), _INTEGERS))
_compute_type = NumpyNamespace().compute_type


@bindable("Cast", any_type=True, elementwise=True)
def cast(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Casts that NumPy does by C's rules, and those that the shared set does by ONNX's."""
    source, target = info.input_element_type(0), info.output_element_type(0)
    if source is None or target is None:
        return None
    task = _task(info)
    if task is not None:
        return _float16_maker(task, compute)
    if (target is TensorElementType.FLOAT16 and source.numpy_dtype.kind in "biu") or (source, target) in _TO_INTEGERS:
        return lambda _inputs, _outputs: copying_writer(compute)
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


def _float16_maker(task: str, compute: Any) -> MakeWriter:
    otherwise = copying_writer(compute)

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        size = inputs[0].size
        if not is_worth_a_task(size, MODULE, task):
            return otherwise
        return _Float16Writer(MODULE, task, Cast(Operand(0), Operand(1), size), otherwise, threads_for(size))

    return make


class _Float16Writer(TaskWriter):
    """A writer that copies an input of another layout to the output's first."""

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        x, out = arrays
        if _needs_copy(x, out):
            contiguous = np.empty(x.shape, x.dtype)
            CopyWriter(lambda: [(contiguous, x)])()
            x = contiguous
        super().__call__(x, out)

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same."""
        x, out = arrays
        if not _needs_copy(x, out):
            return super().bind_arrays(x, out)
        contiguous = np.empty(x.shape, x.dtype)
        converted = super().bind_arrays(contiguous, out)
        return None if converted is None else in_sequence([CopyWriter(lambda: [(contiguous, x)]).bind_arrays(), converted])


def _needs_copy(x: HostArray, out: HostArray) -> bool:
    return out.flags.c_contiguous and not x.flags.c_contiguous


class _CastKernel(AnyLayoutKernel):
    """One that casts arrays of shapes that were never seen before by the task, too."""

    def __init__(self, kernel: Any, make_writer: MakeWriter, call: Callable[..., Any]) -> None:
        super().__init__(kernel, make_writer, is_elementwise=True)
        self._compute = with_fallback(call, self._compute)


def _have_same_strides(x: HostArray, out: HostArray) -> bool:
    """Whether strides are the same, counted in elements: arrays without gaps then have the same memory order."""
    rows = zip(x.shape, x.strides, out.strides, strict=True)
    return all(size == 1 or step * out.itemsize == other * x.itemsize for size, step, other in rows)


@kernel_maker("Cast")
def of_any_shape(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> AnyLayoutKernel | None:
    """The kernel of a node that casts from or to float16."""
    task = _task(info)
    if task is None:
        return None
    results, is_widened = ResultAllocator(), task == "f16_to_f32"
    target = np.float32 if is_widened else np.float16

    def call(x: HostArray) -> Any:
        if not is_worth_a_task(x.size, MODULE, task):
            return NotImplemented
        from ort_sdk_cpu.jit.task import task_function

        is_ordered = x.flags.c_contiguous
        out = results.empty(x.shape) if is_widened and is_ordered else np.empty_like(x, dtype=target)
        if not is_ordered and not _have_same_strides(x, out):
            x = x.copy(order="K")
        task_function(MODULE, task)(threads_for(x.size), Cast(x, out, x.size))
        return out

    return _CastKernel(kernel, make_writer, call)
