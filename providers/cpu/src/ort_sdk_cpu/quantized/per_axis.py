"""QuantizeLinear and DequantizeLinear with scales along an axis, or known at run time only: compiled tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.jit.arguments import raw_arguments
from ort_sdk_cpu.kernel.bound import MakeWriter, Writer, copied
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for

from .parameters import BYTES, WORDS, flip, limits

__all__ = ["dequantized_rows", "quantized_rows"]

MODULE = "quantized"
_FLOAT, _SUMS = np.dtype(np.float32), np.dtype(np.int32)


def quantized_rows(info: KernelInfo, compute: Any) -> MakeWriter:
    """Makes writers of QuantizeLinear.

    Args:
        info: the node.
        compute: the shared set's function.
    """
    names = dict.fromkeys(BYTES, "quantize_rows") | dict.fromkeys(WORDS, "quantize_word_rows")
    is_plain = not info.attribute("precision", 0)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, out = inputs[0], outputs[0]
        if x.dtype != _FLOAT or not is_plain or out.dtype not in names:
            return copied(compute)
        arguments = (flip(out), *limits(out))
        return _row_writer(info, names[out.dtype], (*inputs, out), out.dtype, arguments, copied(compute))

    return make


def dequantized_rows(info: KernelInfo, compute: Any) -> MakeWriter:
    """Makes writers of DequantizeLinear; see ``quantized_rows``."""
    names: dict[np.dtype[Any], str] = {_SUMS: "dequantize_sum_rows"}
    names |= dict.fromkeys(BYTES, "dequantize_rows") | dict.fromkeys(WORDS, "dequantize_word_rows")

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        x, out = inputs[0], outputs[0]
        if out.dtype != _FLOAT or x.dtype not in names:
            return copied(compute)
        flipped = 0 if x.dtype == _SUMS else flip(x)
        return _row_writer(info, names[x.dtype], (*inputs, out), x.dtype, (flipped,), copied(compute))

    return make


def _row_writer(
    info: KernelInfo, name: str, arrays: Sequence[Any], steps: np.dtype[Any], arguments: Sequence[float], otherwise: Writer
) -> Writer:
    """The task on arrays as these, where it is for them. ``steps`` is the type of quantized numbers."""
    x, scales, *zeros, _ = arrays
    zero = zeros[0] if zeros else None
    sizes = _sizes(info, x.shape, scales.shape)
    is_like = zero is None or (zero.shape == scales.shape and zero.dtype == steps)
    if scales.dtype != _FLOAT or sizes is None or not is_like or not is_worth_a_task(x.size, MODULE, name):
        return otherwise
    places = (0, len(arrays) - 1, 1, None if zero is None else 2)
    return TaskWriter(MODULE, name, raw_arguments(places, (*sizes, *arguments)), otherwise, threads_for(x.size))


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
    is_cut = axis == len(shape) - 1 and own == (*shape[:-1], shape[-1] // block_size) and not shape[-1] % block_size
    return (1, math.prod(own), block_size) if is_cut else None
