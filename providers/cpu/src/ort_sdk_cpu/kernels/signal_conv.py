"""Convolutions along one axis of a single channel, as of sound: products with windows read where they lie, overlapping."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, OpKernel, Slot
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu import libraries

from .compiled_product import CompiledProduct, Sizes
from .scratch import Scratch, scratch_of

__all__ = ["SignalConvKernel", "with_windows"]

MIN_TAPS = 16
"""Elements of a window below which a product has too little to do for each result."""
MIN_CHANNELS = 16
"""Columns of a product below which vectors are mostly empty."""
X, WEIGHT, BIAS = range(3)
FLOAT = np.dtype(np.float32)


def with_windows(info: KernelInfo, kernel: Any) -> SignalConvKernel | None:
    """The kernel over products; None if the node is no such convolution.

    Args:
        info: a Conv node.
        kernel: computes what is not contiguous, or has another rank.
    """
    weight = info.constants.get(WEIGHT)
    if weight is None or info.op_type != "Conv" or not libraries.numba().is_usable:
        return None
    outputs, channels, *spatial = weight.shape
    attributes = WindowAttributes.of(info)
    pads = attributes.explicit_pads(len(spatial))
    is_plain = attributes.auto_pad in {"NOTSET", "VALID"} and not any(
        begin or end for begin, end in list(zip(*pads, strict=True))[:-1]
    )
    is_dense = all(step == 1 for step in attributes.dilations or ()) and int(info.attribute("group", 1)) == 1
    taps = math.prod(spatial)
    is_signal = channels == 1 and len(spatial) in {1, 2} and taps == spatial[-1] >= MIN_TAPS
    if not is_signal or not is_plain or not is_dense or not (outputs == 1 or outputs >= MIN_CHANNELS):
        return None
    return SignalConvKernel(info, kernel, _Windows(taps, (attributes.strides or (1,))[-1], pads[0][-1], pads[1][-1]), outputs)


@dataclass(frozen=True, slots=True)
class _Windows:
    """Elements of a window, elements from one to the next, zeros before the signal and behind it."""

    taps: int
    stride: int
    begin: int
    end: int

    def count(self, length: int) -> int:
        """Windows of a signal."""
        return (self.begin + length + self.end - self.taps) // self.stride + 1


class SignalConvKernel(OpKernel):
    """Y[n, m, t] = bias[m] + sum over k of X[n, 0, t * stride + k - begin] * W[m, 0, k].

    The windows are the rows of a matrix whose rows overlap, the result lies channels last.

    Args:
        info: the node.
        kernel: computes what this does not.
        windows: of a signal.
        outputs: channels of Y.
    """

    binds_any_layout = True

    def __init__(self, info: KernelInfo, kernel: Any, windows: _Windows, outputs: int) -> None:
        self._kernel, self._scratch = kernel, scratch_of(info)
        self._windows, self._outputs = windows, outputs
        self._matrix: tuple[HostArray, HostArray] | None = None
        self.deterministic, self.shape_inputs = kernel.deterministic, kernel.shape_inputs

    def compute(self, *inputs: Any) -> Any:
        """A new array (N, M, *spatial), channels last."""
        x = inputs[X]
        if not self._takes(x):
            return self._kernel.compute(*inputs)
        spatial = (*x.shape[2:-1], self._windows.count(x.shape[-1]))
        out = np.moveaxis(np.empty((x.shape[0], *spatial, self._outputs), FLOAT), -1, 1)
        self._product(x)(x, *self._constants(inputs), _rows(out))
        return out

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the output's array."""
        other: Callable[[], Any] = self._kernel.bind(inputs, outputs)
        x, out = inputs[X], outputs[0]
        if all(slot.is_fixed for slot in (*inputs, out)):
            if not self._takes(x.array) or not _is_channels_last(out.array):
                return other
            constants = self._constants([slot.array for slot in inputs])
            return functools.partial(self._product(x.array), x.array, *constants, _rows(out.array))
        product: _WindowProduct | None = None

        def call() -> None:
            nonlocal product
            array, written = x.array, out.array
            if not self._takes(array) or not _is_channels_last(written):
                other()
                return
            product = product or self._product(array)
            product(array, *self._constants([slot.array for slot in inputs]), _rows(written))

        return call

    def _takes(self, x: HostArray) -> bool:
        is_signal = x.ndim in {3, 4} and math.prod(x.shape[1:-1]) == 1 and x.dtype == FLOAT and x.flags.c_contiguous
        return is_signal and bool(x.size) and self._windows.count(x.shape[-1]) > 0

    def _product(self, x: HostArray) -> _WindowProduct:
        return _WindowProduct(x.shape[-1], self._windows, self._outputs, self._scratch)

    def _constants(self, inputs: Sequence[Any]) -> tuple[HostArray, HostArray | None]:
        """The weight as (taps, M), made once, and the bias."""
        weight, bias = inputs[WEIGHT], inputs[BIAS] if len(inputs) > BIAS else None
        if self._matrix is None or self._matrix[0] is not weight:
            self._matrix = (weight, np.ascontiguousarray(weight.reshape(self._outputs, -1).T))
        return self._matrix[1], None if bias is None else np.ascontiguousarray(bias)


class _WindowProduct:
    """Products of the windows of each sample. For one thread at a time."""

    def __init__(self, length: int, windows: _Windows, outputs: int, scratch: Scratch) -> None:
        self._length, self._windows, self._scratch, self._is_single = length, windows, scratch, outputs == 1
        count, step = windows.count(length), windows.stride * FLOAT.itemsize
        if self._is_single:
            sizes = Sizes(1, windows.taps, count, is_transposed=True)
            self._product = CompiledProduct(sizes, scratch, b_row_bytes=step)
        else:
            self._product = CompiledProduct(Sizes(count, windows.taps, outputs), scratch, a_row_bytes=step)

    def __call__(self, x: HostArray, matrix: HostArray, bias: HostArray | None, rows: HostArray) -> None:
        """Write (N, windows, M); one channel is one row of dot products, whose addend would be another for each of them."""
        for sample, out in zip(x.reshape(-1, self._length), rows, strict=True):
            signal = self._padded(sample)
            if self._is_single:
                self._product(matrix, signal, None, out)
            else:
                self._product(signal, matrix, bias, out)
        if self._is_single and bias is not None:
            np.add(rows, bias, rows)

    def _padded(self, sample: HostArray) -> HostArray:
        begin, end = self._windows.begin, self._windows.end
        if not begin and not end:
            return sample
        padded = self._scratch.array("signal", (begin + self._length + end,), FLOAT)
        padded[:begin] = padded[begin + self._length :] = 0
        padded[begin : begin + self._length] = sample
        return padded


def _is_channels_last(array: HostArray) -> bool:
    return bool(np.moveaxis(array, 1, -1).flags.c_contiguous)


def _rows(out: HostArray) -> HostArray:
    """(N, M, *spatial) as (N, windows, M)."""
    return np.moveaxis(out, 1, -1).reshape(out.shape[0], -1, out.shape[1])
