"""Compiled tasks without a program: for runs whose shapes were never seen before, as those of a growing sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.memory.strides import memory_order

from .bound import MakeWriter
from .task_writer import are_floats, is_worth_a_task

__all__ = ["through_writer"]

OPERATORS = frozenset(
    {
        *(("", op_type) for op_type in ("Erf", "Gelu", "LayerNormalization", "RMSNormalization", "Sigmoid", "Softmax")),
        ("", "SimplifiedLayerNormalization"),
        *(("com.microsoft", op_type) for op_type in ("BiasGelu", "FastGelu", "Gelu", "SkipLayerNormalization")),
        ("com.microsoft", "SkipSimplifiedLayerNormalization"),
    }
)
"""Operators whose writers are tasks, and whose outputs have the shape and type of the first input."""

UNARY = frozenset({("", "Erf"), ("", "Gelu"), ("", "Sigmoid"), ("com.microsoft", "Gelu")})
"""Those that do the same to each element of their only input, so that the output lies as the input does."""

QUANTIZED = {
    ("", "QuantizeLinear"): (0,),
    **dict.fromkeys((("com.microsoft", op_type) for op_type in ("QLinearAdd", "QLinearMul")), (0, 3)),
    **dict.fromkeys((("com.microsoft", op_type) for op_type in ("QLinearLeakyRelu", "QLinearSigmoid")), (0,)),
}
"""Operators that give 8-bit numbers, element by element → which inputs are the elements."""

BY_RANGE = ("", "DynamicQuantizeLinear")
"""The one that gives their scale and zero point, too."""

FEWEST_QUANTIZED = 1 << 14
"""Elements from which on they are worth a writer of their own: it takes as long as NumPy with some thousands."""


def through_writer(info: KernelInfo, compute: Callable[..., Any], make_writer: MakeWriter) -> Callable[..., Any]:
    """The kernel's function, which goes over the writer where all is of float32, or quantized, and large enough.

    Args:
        info: the node.
        compute: the shared set's function, which all other calls go to.
        make_writer: makes the writer, anew in each call: a writer serves one thread.
    """
    if (info.domain, info.op_type) in QUANTIZED:
        return _quantized(info, compute, make_writer)
    if (info.domain, info.op_type) == BY_RANGE:
        return _quantized_by_range(compute, make_writer)
    if (info.domain, info.op_type) not in OPERATORS:
        return compute
    wanted = [info.wants_output(index) for index in range(len(info.outputs))]
    while wanted and not wanted[-1]:
        wanted.pop()

    def run(x: HostArray, *others: Any) -> Any:
        arrays = (x, *others)
        is_large = is_worth_a_task(x.size) and x.flags.c_contiguous
        if not wanted or not is_large or not are_floats(arrays) or not all(_fits(other, x) for other in others):
            return compute(*arrays)
        outputs = tuple(np.empty(x.shape, x.dtype) if is_wanted else None for is_wanted in wanted)
        make_writer(arrays, outputs)(*arrays, *outputs)  # type: ignore[arg-type]
        return outputs if len(outputs) > 1 else outputs[0]

    def run_as_it_lies(x: HostArray) -> Any:
        if x.flags.c_contiguous:
            return run(x)
        order = memory_order(x)
        return run(x.transpose(order)).transpose(np.argsort(order))

    return run_as_it_lies if (info.domain, info.op_type) in UNARY else run


def _quantized(info: KernelInfo, compute: Callable[..., Any], make_writer: MakeWriter) -> Callable[..., Any]:
    """The function of an operator in ``QUANTIZED``: the output lies as the first input does."""
    element_type, places = info.output_element_type(0), QUANTIZED[info.domain, info.op_type]
    if element_type not in {TensorElementType.INT8, TensorElementType.UINT8}:
        return compute

    def run(*arrays: Any) -> Any:
        x = arrays[0]
        is_even = all(arrays[place].shape == x.shape for place in places)
        if x.size < FEWEST_QUANTIZED or not is_even or not is_worth_a_task(x.size):
            return compute(*arrays)
        out = np.empty_like(x, element_type.numpy_dtype)
        make_writer(arrays, (out,))(*arrays, out)
        return out

    return run


def _quantized_by_range(compute: Callable[..., Any], make_writer: MakeWriter) -> Callable[..., Any]:
    """The function of the operator ``BY_RANGE``: the output lies as the input does."""

    def run(x: HostArray) -> Any:
        if x.size < FEWEST_QUANTIZED or x.dtype != np.float32 or not is_worth_a_task(x.size):
            return compute(x)
        outputs = (np.empty_like(x, np.uint8), np.empty((), np.float32), np.empty((), np.uint8))
        make_writer((x,), outputs)(x, *outputs)
        return outputs

    return run


def _fits(other: HostArray | None, x: HostArray) -> bool:
    """Whether a further input is like the first, or one of its rows: wrong shapes are the shared set's to refuse."""
    return other is None or other.shape in {x.shape, x.shape[-1:]}
