"""QuantizeLinear and DequantizeLinear with scales along an axis, or known at run time only: compiled tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.jit.arguments import Operand, TaskArguments
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer

from .arguments.linear import MODULE, DequantizePerAxis, QuantizePerAxis
from .parameters import BYTES, WORDS, limits, sign_bit

__all__ = ["dequantized_rows", "quantized_rows"]

_FLOAT, _SUMS = np.dtype(np.float32), np.dtype(np.int32)


def quantized_rows(info: KernelInfo, compute: Any) -> MakeWriter:
    """Makes writers of QuantizeLinear.

    Args:
        info: the node.
        compute: the shared set's function.
    """
    names = dict.fromkeys(BYTES, "quantize_per_axis_8") | dict.fromkeys(WORDS, "quantize_per_axis_16")
    is_plain = not info.attribute("precision", 0)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, out = inputs[0], outputs[0]
        if x.dtype != _FLOAT or not is_plain or out.dtype not in names:
            return copying_writer(compute)
        words = QuantizePerAxis, (sign_bit(out), *limits(out))
        return _writer(info, names[out.dtype], (*inputs, out), out.dtype, words, copying_writer(compute))

    return make


def dequantized_rows(info: KernelInfo, compute: Any) -> MakeWriter:
    """Makes writers of DequantizeLinear; see ``quantized_rows``."""
    names: dict[np.dtype[Any], str] = {_SUMS: "dequantize_per_axis_32"}
    names |= dict.fromkeys(BYTES, "dequantize_per_axis_8") | dict.fromkeys(WORDS, "dequantize_per_axis_16")

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, out = inputs[0], outputs[0]
        if out.dtype != _FLOAT or x.dtype not in names:
            return copying_writer(compute)
        sign = 0 if x.dtype == _SUMS else sign_bit(x)
        return _writer(info, names[x.dtype], (*inputs, out), x.dtype, (DequantizePerAxis, (sign,)), copying_writer(compute))

    return make


def _writer(
    info: KernelInfo,
    name: str,
    arrays: Sequence[Any],
    quantized: np.dtype[Any],
    words: tuple[type[TaskArguments], tuple[float, ...]],
    otherwise: Writer,
) -> Writer:
    """The task on arrays as these, where it is for them.

    Args:
        info: the node.
        name: the task's.
        arrays: inputs and output.
        quantized: type of quantized elements.
        words: class of the task's arguments, and what these have behind sizes.
        otherwise: the writer where it is not for them.
    """
    x, scales, *zeros, _ = arrays
    zero = zeros[0] if zeros else None
    sizes = _sizes(info, x.shape, scales.shape)
    is_like = zero is None or (zero.shape == scales.shape and zero.dtype == quantized)
    if scales.dtype != _FLOAT or sizes is None or not is_like or not is_worth_a_task(x.size, MODULE, name):
        return otherwise
    operands = (Operand(0), Operand(len(arrays) - 1), Operand(1), 0 if zero is None else Operand(2))
    arguments, options = words
    made = arguments.of_words((*operands, *sizes, *options))
    return TaskWriter(MODULE, name, made, otherwise, threads_for(x.size))


def _sizes(info: KernelInfo, shape: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Sizes before, of and behind the axis that scales of a shape run along; None if they do not run along one.

    Blocks of the last axis are rows of a matrix.
    """
    axis, block_size = int(info.attribute("axis", 1)), int(info.attribute("block_size", 0))
    if own in {(), (1,)}:
        return 1, 1, math.prod(shape)
    if not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    if not block_size:
        return (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])) if own == (shape[axis],) else None
    is_blocked = axis == len(shape) - 1 and own == (*shape[:-1], shape[-1] // block_size) and not shape[-1] % block_size
    return (1, math.prod(own), block_size) if is_blocked else None
