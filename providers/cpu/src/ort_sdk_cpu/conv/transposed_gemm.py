"""ConvTranspose whose windows lie side by side: one product, each row of which holds the window of an element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, InvalidGraph, KernelInfo
from ort_sdk.opset.sizes import tiled
from ort_sdk_cpu.gemm.plan import GemmCall
from ort_sdk_cpu.gemm.select import GemmProblem
from ort_sdk_cpu.jit.native_call import in_turn
from ort_sdk_cpu.kernel.copy import CopyWriter, copy_elements
from ort_sdk_cpu.memory.workspace import Scratch
from ort_sdk_cpu.platform import libraries

from .conv_1d import BIAS, WEIGHT, SignalConvKernel, is_channels_last
from .geometry import ConvGeometry

__all__ = ["SpreadConvKernel", "with_windows_apart"]

MOST_OUTPUTS = 16
"""Channels of a result up to which oneDNN leaves most of its vectors empty."""
LEAST_WINDOW = 4
"""Elements of a window and its channels below which a row of the product leaves as much of a vector empty."""
FEW_OUTPUTS, LEAST_WINDOW_OF_FEW = 4, 64
"""Channels of which there is a task that makes vectors of neighbours, and elements from which on products are faster than it."""
FLOAT = np.dtype(np.float32)


def with_windows_apart(info: KernelInfo, make_usual: Callable[[], Any]) -> SpreadConvKernel | None:
    """The kernel over a product; None if the node is no such convolution.

    Args:
        info: a ConvTranspose node.
        make_usual: makes the kernel that computes inputs this does not.
    """
    weight = info.constants.get(WEIGHT)
    if weight is None or len(weight.shape) != 4 or not libraries.numba().is_usable:
        return None
    inner, outputs, *window = weight.shape
    has_bias_of_runs = info.has_input(BIAS) and BIAS not in info.constants
    least = LEAST_WINDOW_OF_FEW if outputs <= FEW_OUTPUTS else LEAST_WINDOW
    if has_bias_of_runs or outputs > MOST_OUTPUTS or outputs * math.prod(window) < least:
        return None
    try:
        is_plain = _lie_apart(ConvGeometry.of(info), tuple(weight.shape))
    except (InvalidArgument, InvalidGraph):
        return None  # The other kernel says so when it is run.
    return SpreadConvKernel(info, make_usual, (inner, outputs, window[0], window[1])) if is_plain else None


def _lie_apart(geometry: ConvGeometry, weight: tuple[int, ...]) -> bool:
    """Whether windows cover the result, each element once."""
    if geometry.groups != 1 or geometry.transpose is None or geometry.transpose.output_shape:
        return False
    padding = geometry.padding((1, weight[0], 1, 1), weight)
    has_gaps = any((*padding.begins, *padding.ends)) or set(padding.dilations) != {1}
    return padding.strides == weight[2:] and not has_gaps


class SpreadConvKernel(SignalConvKernel):
    """Y[n, m, i * height + k, j * width + l] = bias[m] + sum over c of X[n, c, i, j] * W[c, m, k, l].

    Args:
        info: the node.
        make_usual: makes the kernel that computes what this does not.
        shape: of W.
    """

    def __init__(self, info: KernelInfo, make_usual: Callable[[], Any], shape: tuple[int, int, int, int]) -> None:
        super().__init__(info, make_usual, shape[1], 0)
        self._shape = shape

    def compute(self, *inputs: Any) -> Any:
        """A new array (N, M, *size), channels last."""
        self._check(inputs)
        x = inputs[0]
        if not self._takes(x):
            return self._compute_usual(inputs)
        height, width = (size * taps for size, taps in zip(x.shape[2:], self._shape[2:], strict=True))
        out = np.empty((x.shape[0], height, width, self._outputs), FLOAT)
        self._product(x)(x, *self._constants(inputs), out)
        return np.moveaxis(out, -1, 1)

    def _takes(self, x: HostArray) -> bool:
        return bool(x.dtype == FLOAT and x.ndim == 4 and x.size > 0 and x.shape[1] == self._shape[0])

    def _is_signal(self, _shape: tuple[int, ...]) -> bool:
        return True

    def _product(self, x: HostArray) -> _SpreadProduct:
        return _SpreadProduct(x.shape, self._shape, self._scratch)

    def _arranged(self, weight: HostArray) -> HostArray:
        """(C, elements of a window), channels last."""
        return np.ascontiguousarray(weight.transpose(0, 2, 3, 1)).reshape(self._shape[0], -1)

    def _constants(self, inputs: Any) -> tuple[HostArray, HostArray | None]:
        """The weight as it is read, and the bias of each element of a window."""
        matrix, bias = super()._constants(inputs)
        if bias is None:
            return matrix, None
        return matrix, tiled(bias, (math.prod(self._shape[2:]),))


class _SpreadProduct:
    """Multiplies elements by all windows, and puts the windows where they belong. For one thread at a time.

    Args:
        shape: of X.
        weight: shape of W.
        scratch: working memory.
    """

    def __init__(self, shape: tuple[int, ...], weight: tuple[int, int, int, int], scratch: Scratch) -> None:
        inner, outputs, *window = weight
        self._scratch = scratch
        self._windows = (shape[0], *shape[2:], *window, outputs)
        self._product = GemmCall(GemmProblem(shape[0] * math.prod(shape[2:]), inner, outputs * math.prod(window)), scratch)

    def __call__(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write (N, elements, M)."""
        rows = x.transpose(0, 2, 3, 1)
        if not is_channels_last(x):
            turned = self._scratch.array("rows", rows.shape, FLOAT)
            copy_elements(turned, rows)
            rows = turned
        windows = self._scratch.array("windows", self._windows, FLOAT)
        self._product(rows, matrix, bias, windows)
        copy_elements(self._places(out), windows)

    def fixed(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same, with memory of its own for what lies between."""
        rows, calls = x.transpose(0, 2, 3, 1), []
        if not is_channels_last(x):
            turned = np.empty(rows.shape, FLOAT)
            calls.append(CopyWriter(lambda: [(turned, rows)]).fixed())
            rows = turned
        windows = np.empty(self._windows, FLOAT)
        calls.append(self._product.fixed(rows, matrix, bias, windows))
        calls.append(CopyWriter(lambda: [(self._places(out), windows)]).fixed())
        return in_turn(calls)

    def _places(self, out: HostArray) -> HostArray:
        """A view of the result, whose axes are those of the windows."""
        samples, height, width, *window, outputs = self._windows
        return out.reshape(samples, height, window[0], width, window[1], outputs).transpose(0, 1, 3, 2, 4, 5)
