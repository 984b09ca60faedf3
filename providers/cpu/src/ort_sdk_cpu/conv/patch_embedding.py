"""Convolutions whose windows lie side by side, as of pictures and films cut into patches: one product with patches as rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu.gemm.plan import GemmCall
from ort_sdk_cpu.gemm.select import GemmProblem
from ort_sdk_cpu.jit.native_call import in_turn
from ort_sdk_cpu.kernel.copy import COPIED_AT_ONCE, CopyWriter, Pairs
from ort_sdk_cpu.kernel.layouts.strided_copy import strided_copy
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.workspace import Scratch
from ort_sdk_cpu.platform import libraries

from .conv_1d import BIAS, WEIGHT, SignalConvKernel

__all__ = ["PatchConvKernel", "with_patches"]

MOST_CHANNELS = 4
"""Of a picture, which lies row-major: others lie channels last, so that patches have no long rows to copy."""
FILM_AXES = 3
MIN_INNER = 128
"""Elements of a patch below which weights of a vector of channels stay in the first cache, and nothing need be copied."""
FLOAT = np.dtype(np.float32)


def with_patches(info: KernelInfo, make_usual: Callable[[], Any]) -> PatchConvKernel | None:
    """The kernel over products; None if the node is no such convolution.

    Args:
        info: a Conv or FusedConv node.
        make_usual: makes the kernel that computes inputs this does not.
    """
    weight = info.constants.get(WEIGHT)
    has_more = len(info.inputs) > BIAS + 1 or info.op_type != "Conv" or int(info.attribute("group", 1)) != 1
    if weight is None or has_more or len(weight.shape) - 2 not in {2, FILM_AXES} or not libraries.numba().is_usable:
        return None
    outputs, *patch = weight.shape
    if patch[0] > MOST_CHANNELS or math.prod(patch) < MIN_INNER:
        return None
    attributes, kernel_shape = WindowAttributes.of(info), tuple(patch[1:])
    is_plain = attributes.auto_pad in {"NOTSET", "VALID"} and not any(attributes.pads or ())
    strides, dilations = (attributes.per_axis(name, len(kernel_shape), 1) for name in ("strides", "dilations"))
    if not is_plain or tuple(strides) != kernel_shape or set(dilations) != {1}:
        return None
    return PatchConvKernel(info, make_usual, outputs, tuple(patch))


class PatchConvKernel(SignalConvKernel):
    """Y[n, m, *place] = bias[m] + sum over a patch of X times W[m]; with channels last, Y's rows are products of patches.

    Args:
        info: the node.
        make_usual: makes the kernel that computes what this does not.
        outputs: channels of Y.
        patch: channels and size of a patch.
    """

    def __init__(self, info: KernelInfo, make_usual: Callable[[], Any], outputs: int, patch: tuple[int, ...]) -> None:
        super().__init__(info, make_usual, outputs, 0)
        self._patch = patch

    def compute(self, *inputs: Any) -> Any:
        """A new array (N, M, *patches), channels last."""
        self._check(inputs)
        x = inputs[0]
        if not self._takes(x):
            return self._compute_usual(inputs)
        size = _counts(x.shape, self._patch)
        out = np.empty((x.shape[0], *size, self._outputs), FLOAT)
        self._product(x)(x, *self._constants(inputs), out)
        return np.moveaxis(out, -1, 1)

    def _takes(self, x: HostArray) -> bool:
        is_picture = x.dtype == FLOAT and x.ndim == len(self._patch) + 1 and x.shape[1] == self._patch[0]
        return is_picture and x.size > 0 and all(_counts(x.shape, self._patch))

    def _is_signal(self, _shape: tuple[int, ...]) -> bool:
        return True

    def _product(self, x: HostArray) -> _PatchProduct:
        return _PatchProduct(x.shape, self._patch, self._outputs, self._scratch)

    def _arranged(self, weight: HostArray) -> HostArray:
        """(M, elements of a patch)."""
        return np.ascontiguousarray(weight).reshape(self._outputs, -1)


def _counts(shape: tuple[int, ...], patch: tuple[int, ...]) -> list[int]:
    """Patches along the axes of an input of this shape."""
    return [size // length for size, length in zip(shape[2:], patch[1:], strict=True)]


class _PatchProduct:
    """Copies patches and multiplies them. For one thread at a time.

    Args:
        shape: of X.
        patch: channels and size of a patch.
        outputs: channels of Y.
        scratch: working memory.
    """

    def __init__(self, shape: tuple[int, ...], patch: tuple[int, ...], outputs: int, scratch: Scratch) -> None:
        self._patch, self._scratch = patch, scratch
        self._counts = _counts(shape, patch)
        rows, inner = shape[0] * math.prod(self._counts), math.prod(patch)
        self._shape = (shape[0], *self._counts, *patch)
        self._product = GemmCall(GemmProblem(rows, inner, outputs, trans_b=True), scratch)
        self._threads = threads_for(rows * inner // COPIED_AT_ONCE)
        self._copies: dict[tuple[int, ...], Any] = {}
        """By strides of X."""

    def __call__(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write rows (N, patches, M)."""
        patches = self._scratch.array("patches", self._shape, FLOAT)
        for target, source in self._pairs(patches, x):
            copy = self._copy(target, source)
            if copy is None:
                np.copyto(target, source)
                continue
            copy.point(0, target)
            copy.point(1, source)
            copy.run()
        self._product(patches, matrix, bias, out)

    def fixed(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same, with memory of its own for the patches."""
        patches = np.empty(self._shape, FLOAT)
        copy = CopyWriter(lambda: self._pairs(patches, x)).fixed()
        return in_turn([copy, self._product.fixed(patches, matrix, bias, out)])

    def _patches_of(self, x: HostArray) -> HostArray:
        """A view (N, *patches, *patch)."""
        counts, sizes = self._counts, self._patch[1:]
        cut = x[:, :, *(slice(count * size) for count, size in zip(counts, sizes, strict=True))]
        parts = [number for pair in zip(counts, sizes, strict=True) for number in pair]
        last = 2 + len(parts)
        return cut.reshape(*x.shape[:2], *parts).transpose(0, *range(2, last, 2), 1, *range(3, last, 2))

    def _pairs(self, patches: HostArray, x: HostArray) -> Pairs:
        """What is copied: of a film one picture of the patches at a time, as a task goes over no more axes than that."""
        source = self._patches_of(x)
        if len(self._counts) < FILM_AXES:
            return [(patches, source)]
        times, taps = 1, len(self._counts) + 2
        both = [np.moveaxis(array, (times, taps), (0, 1)) for array in (patches, source)]
        return [(both[0][index], both[1][index]) for index in np.ndindex(both[0].shape[:2])]

    def _copy(self, target: HostArray, source: HostArray) -> Any:
        if source.strides not in self._copies:
            made = strided_copy(target.shape, target.strides, source.strides, FLOAT.itemsize, self._threads)
            self._copies[source.strides] = made
        return self._copies[source.strides]
