"""Softmax and normalizations on a run's arrays, of shapes that were never seen before."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.kernel.eager_tasks import EagerCall, EagerTask, eager_call, is_vector
from ort_sdk_cpu.kernel.selecting import Selection, selecting_call
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter
from ort_sdk_cpu.memory.result_pool import ResultAllocator

from .arguments.rows import MODULE, Normalization, Softmax
from .select import SoftmaxAlgorithm

__all__: list[str] = []

_MICROSOFT = "com.microsoft"
_ROWS, _NUMPY = SoftmaxAlgorithm.ROWS.value, SoftmaxAlgorithm.NUMPY.value


@eager_call("Softmax")
def softmax(info: KernelInfo, _make_writer: MakeWriter) -> EagerCall | None:
    """Along the last axis."""
    axis = int(info.attribute("axis", -1 if info.since_version >= 13 else 1))
    is_flattened = info.since_version < 13
    task, results = EagerTask(MODULE, "softmax"), ResultAllocator()

    def call(selection: Selection, x: HostArray) -> Any:
        rank, size = x.ndim, x.size
        if not task.pays(size) or not rank or axis not in {-1, rank - 1} or not x.flags.c_contiguous:
            selection.algorithm = _NUMPY
            return NotImplemented
        selection.algorithm = _ROWS
        out, width = results.empty(x.shape), x.shape[-1]
        task()(threads_for(size), Softmax(x, out, size // width, width))
        return out

    return None if is_flattened else selecting_call(call)


@eager_call("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def normalization(info: KernelInfo, _make_writer: MakeWriter) -> EagerCall | None:
    """Along the last axis, without statistics."""
    if any(info.wants_output(index) for index in range(1, len(info.outputs))):
        return None
    axis, epsilon = int(info.attribute("axis", -1)), float(info.attribute("epsilon", 1e-5))
    name = "layer_normalization" if info.op_type == "LayerNormalization" else "rms_normalization"
    task, results = EagerTask(MODULE, name), ResultAllocator()

    def call(x: HostArray, scale: HostArray, shift: HostArray | None = None) -> Any:
        size, width = x.size, x.shape[-1] if x.ndim else 0
        if not task.pays(size) or axis not in {-1, x.ndim - 1} or not x.flags.c_contiguous:
            return NotImplemented
        if not is_vector(scale, width) or not is_vector(shift, width):
            return NotImplemented
        out = results.empty(x.shape)
        task()(threads_for(size), Normalization(x, None, None, None, out, scale, shift, size // width, width, epsilon))
        return out

    return call


@eager_call("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=_MICROSOFT)
def skip_normalization(info: KernelInfo, _make_writer: MakeWriter) -> EagerCall | None:
    """The same of input + skip + bias, which may be an output, too."""
    wanted = [index for index in range(len(info.outputs)) if info.wants_output(index)]
    if not wanted or wanted[0] or set(wanted) - {0, 3}:
        return None
    epsilon, has_shift = float(info.attribute("epsilon", 1e-12)), info.op_type == "SkipLayerNormalization"
    task = EagerTask(MODULE, "layer_normalization" if has_shift else "rms_normalization")
    gives_total, results = len(wanted) > 1, ResultAllocator()

    def call(x: HostArray, skip: HostArray, scale: HostArray, *others: Any) -> Any:
        shift, bias = (*others, None, None)[:2] if has_shift else (None, *others, None)[:2]
        size, width = x.size, x.shape[-1] if x.ndim else 0
        if not task.pays(size) or skip.shape != x.shape or not (x.flags.c_contiguous and skip.flags.c_contiguous):
            return NotImplemented
        if not (is_vector(scale, width) and is_vector(shift, width) and is_vector(bias, width)):
            return NotImplemented
        out = results.empty(x.shape)
        total = results.empty(x.shape) if gives_total else out
        task()(threads_for(size), Normalization(x, skip, bias, total, out, scale, shift, size // width, width, epsilon))
        return (out, None, None, total) if gives_total else out

    return call
