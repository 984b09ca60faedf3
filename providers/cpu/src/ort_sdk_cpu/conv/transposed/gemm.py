"""ConvTranspose whose windows are side by side: a GEMM, each row of which holds the window of an element, and depth-to-space."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.opset.sizes import tiled
from ort_sdk_cpu.conv.problem import ConvAlgorithm
from ort_sdk_cpu.conv.specialized import FLOAT, SpecializedConvKernel
from ort_sdk_cpu.gemm.plan import GemmCall
from ort_sdk_cpu.gemm.select import GemmProblem
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.copy import CopyWriter, copy_elements
from ort_sdk_cpu.kernel.layouts.memory import is_nhwc
from ort_sdk_cpu.memory.workspace import Workspace

__all__ = ["TransposedGemmKernel"]


class TransposedGemmKernel(SpecializedConvKernel):
    """Y[n, m, i * height + k, j * width + l] = bias[m] + sum over c of X[n, c, i, j] * W[c, m, k, l].

    Arguments as for ``SpecializedConvKernel``.
    """

    own_algorithm = ConvAlgorithm.TRANSPOSED_GEMM

    def _new_output(self, x: HostArray) -> HostArray:
        height, width = (size * taps for size, taps in zip(x.shape[2:], self._shape[2:], strict=True))
        return np.moveaxis(np.empty((x.shape[0], height, width, self._shape[1]), FLOAT), -1, 1)

    def _output(self, out: HostArray) -> HostArray:
        """(N, H, W, M)."""
        return np.moveaxis(out, 1, -1)

    def _takes(self, x: HostArray) -> bool:
        return bool(x.dtype == FLOAT and x.ndim == 4 and x.size > 0 and x.shape[1] == self._shape[0])

    def _launch(self, x: HostArray) -> _WindowsGemm:
        return _WindowsGemm(x.shape, self._shape, self._workspace)

    def _arranged(self, weight: HostArray) -> HostArray:
        """(C, elements of a window), channels last."""
        return np.ascontiguousarray(weight.transpose(0, 2, 3, 1)).reshape(self._shape[0], -1)

    def _constants(self, inputs: Any) -> tuple[HostArray, HostArray | None]:
        """The weight as it is read, and the bias of each element of a window."""
        matrix, bias = super()._constants(inputs)
        if bias is None:
            return matrix, None
        return matrix, tiled(bias, (math.prod(self._shape[2:]),))


class _WindowsGemm:
    """GEMM of elements and all windows, and depth-to-space of the windows. For one thread at a time.

    Args:
        shape: of X.
        weight: shape of W.
        workspace: the workspace.
    """

    def __init__(self, shape: tuple[int, ...], weight: tuple[int, ...], workspace: Workspace) -> None:
        inner, outputs, *window = weight
        self._workspace = workspace
        self._windows = (shape[0], *shape[2:], *window, outputs)
        self._gemm = GemmCall(GemmProblem(shape[0] * math.prod(shape[2:]), inner, outputs * math.prod(window)), workspace)

    def __call__(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write (N, H, W, M)."""
        rows = x.transpose(0, 2, 3, 1)
        if not is_nhwc(x):
            transposed = self._workspace.array("rows", rows.shape, FLOAT)
            copy_elements(transposed, rows)
            rows = transposed
        windows = self._workspace.array("windows", self._windows, FLOAT)
        self._gemm(rows, matrix, bias, windows)
        copy_elements(self._windows_of(out), windows)

    def bind_arrays(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same, with memory of its own for what is between."""
        rows, calls = x.transpose(0, 2, 3, 1), []
        if not is_nhwc(x):
            transposed = np.empty(rows.shape, FLOAT)
            calls.append(CopyWriter(lambda: [(transposed, rows)]).bind_arrays())
            rows = transposed
        windows = np.empty(self._windows, FLOAT)
        calls.append(self._gemm.bind_arrays(rows, matrix, bias, windows))
        calls.append(CopyWriter(lambda: [(self._windows_of(out), windows)]).bind_arrays())
        return in_sequence(calls)

    def _windows_of(self, out: HostArray) -> HostArray:
        """A view of the result, whose axes are those of the windows."""
        samples, height, width, *window, outputs = self._windows
        return out.reshape(samples, height, window[0], width, window[1], outputs).transpose(0, 1, 3, 2, 4, 5)
