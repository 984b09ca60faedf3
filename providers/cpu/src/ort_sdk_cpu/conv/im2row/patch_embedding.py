"""Convolutions whose windows are side by side, as of images and videos cut into patches: im2row, and one GEMM."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.conv.problem import ConvAlgorithm, ConvProblem
from ort_sdk_cpu.conv.specialized import FLOAT, SpecializedConvKernel
from ort_sdk_cpu.gemm.plan import GemmCall
from ort_sdk_cpu.gemm.select import GemmProblem
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.copy import COPIES_PER_ELEMENT, CopyWriter
from ort_sdk_cpu.kernel.layouts.strided_copy import strided_copy
from ort_sdk_cpu.kernel.runs import Pairs
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.workspace import Workspace

__all__ = ["PatchEmbeddingKernel"]

VIDEO_AXES = 3


class PatchEmbeddingKernel(SpecializedConvKernel):
    """Y[n, m, *position] = bias[m] + sum over a patch of X times W[m]; with channels last, Y's rows are products of patches.

    Arguments as for ``SpecializedConvKernel``.
    """

    own_algorithm = ConvAlgorithm.PATCH_EMBEDDING

    def __init__(self, info: KernelInfo, make_general: Callable[[], Any], problem: ConvProblem) -> None:
        super().__init__(info, make_general, problem)
        self._outputs, *patch = self._shape
        self._patch = tuple(patch)
        """Channels and size of a patch."""

    def _new_output(self, x: HostArray) -> HostArray:
        return np.moveaxis(np.empty((x.shape[0], *_counts(x.shape, self._patch), self._outputs), FLOAT), -1, 1)

    def _output(self, out: HostArray) -> HostArray:
        """(N, patches, M)."""
        return np.moveaxis(out, 1, -1)

    def _takes(self, x: HostArray) -> bool:
        is_fit = x.dtype == FLOAT and x.ndim == len(self._patch) + 1 and x.shape[1] == self._patch[0]
        return is_fit and x.size > 0 and all(_counts(x.shape, self._patch))

    def _launch(self, x: HostArray) -> _PatchGemm:
        return _PatchGemm(x.shape, self._patch, self._outputs, self._workspace)

    def _arranged(self, weight: HostArray) -> HostArray:
        """(M, elements of a patch)."""
        return np.ascontiguousarray(weight).reshape(self._outputs, -1)


def _counts(shape: tuple[int, ...], patch: tuple[int, ...]) -> list[int]:
    """Patches along the axes of an input of this shape."""
    return [size // length for size, length in zip(shape[2:], patch[1:], strict=True)]


class _PatchGemm:
    """Copies patches and multiplies them. For one thread at a time.

    Args:
        shape: of X.
        patch: channels and size of a patch.
        outputs: channels of Y.
        workspace: the workspace.
    """

    def __init__(self, shape: tuple[int, ...], patch: tuple[int, ...], outputs: int, workspace: Workspace) -> None:
        self._patch, self._workspace = patch, workspace
        self._counts = _counts(shape, patch)
        rows, inner = shape[0] * math.prod(self._counts), math.prod(patch)
        self._shape = (shape[0], *self._counts, *patch)
        self._gemm = GemmCall(GemmProblem(rows, inner, outputs, trans_b=True), workspace)
        self._threads = threads_for(rows * inner // COPIES_PER_ELEMENT)
        self._copies: dict[tuple[int, ...], Any] = {}
        """By strides of X."""

    def __call__(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write rows (N, patches, M)."""
        patches = self._workspace.array("patches", self._shape, FLOAT)
        for target, source in self._pairs(patches, x):
            copy = self._copy(target, source)
            if copy is None:
                np.copyto(target, source)
                continue
            copy.point(0, target)
            copy.point(1, source)
            copy.run()
        self._gemm(patches, matrix, bias, out)

    def bind_arrays(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same, with memory of its own for the patches."""
        patches = np.empty(self._shape, FLOAT)
        copy = CopyWriter(lambda: self._pairs(patches, x)).bind_arrays()
        return in_sequence([copy, self._gemm.bind_arrays(patches, matrix, bias, out)])

    def _patches_of(self, x: HostArray) -> HostArray:
        """A view (N, *patches, *patch)."""
        counts, sizes = self._counts, self._patch[1:]
        cut = x[:, :, *(slice(count * size) for count, size in zip(counts, sizes, strict=True))]
        parts = [number for pair in zip(counts, sizes, strict=True) for number in pair]
        last = 2 + len(parts)
        return cut.reshape(*x.shape[:2], *parts).transpose(0, *range(2, last, 2), 1, *range(3, last, 2))

    def _pairs(self, patches: HostArray, x: HostArray) -> Pairs:
        """What is copied: of a video one frame of the patches at a time, as a task goes over no more axes than that."""
        source = self._patches_of(x)
        if len(self._counts) < VIDEO_AXES:
            return [(patches, source)]
        times, taps = 1, len(self._counts) + 2
        both = [np.moveaxis(array, (times, taps), (0, 1)) for array in (patches, source)]
        return [(both[0][index], both[1][index]) for index in np.ndindex(both[0].shape[:2])]

    def _copy(self, target: HostArray, source: HostArray) -> Any:
        if source.strides not in self._copies:
            made = strided_copy(target.shape, target.strides, source.strides, FLOAT.itemsize, self._threads)
            self._copies[source.strides] = made
        return self._copies[source.strides]
