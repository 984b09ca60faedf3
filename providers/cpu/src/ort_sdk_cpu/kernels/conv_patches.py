"""Convolutions whose windows lie side by side, as of pictures cut into patches: one product with the patches as rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu import libraries
from ort_sdk_cpu.native_call import in_turn

from .compiled_product import CompiledProduct, Sizes
from .copies import COPIED_AT_ONCE, CopyWriter
from .scratch import Scratch
from .signal_conv import BIAS, WEIGHT, SignalConvKernel
from .strided_copy import strided_copy
from .task_writer import threads_for

__all__ = ["PatchConvKernel", "with_patches"]

MOST_CHANNELS = 4
"""Of a picture, which lies row-major: others lie channels last, so that patches have no long rows to copy."""
MIN_INNER = 128
"""Elements of a patch below which weights of a vector of channels stay in the first cache, and nothing need be copied."""
FLOAT = np.dtype(np.float32)


def with_patches(info: KernelInfo, kernel: Any) -> PatchConvKernel | None:
    """The kernel over products; None if the node is no such convolution.

    Args:
        info: a Conv, FusedConv or ConvTranspose node.
        kernel: computes inputs this does not.
    """
    weight = info.constants.get(WEIGHT)
    has_more = len(info.inputs) > BIAS + 1 or info.op_type != "Conv" or int(info.attribute("group", 1)) != 1
    if weight is None or has_more or len(weight.shape) != 4 or not libraries.numba().is_usable:
        return None
    outputs, *patch = weight.shape
    attributes, kernel_shape = WindowAttributes.of(info), tuple(patch[1:])
    is_plain = attributes.auto_pad in {"NOTSET", "VALID"} and not any(attributes.pads or ()) and patch[0] <= MOST_CHANNELS
    strides, dilations = (attributes.per_axis(name, 2, 1) for name in ("strides", "dilations"))
    if not is_plain or tuple(strides) != kernel_shape or tuple(dilations) != (1, 1) or math.prod(patch) < MIN_INNER:
        return None
    return PatchConvKernel(info, kernel, outputs, (patch[0], patch[1], patch[2]))


class PatchConvKernel(SignalConvKernel):
    """Y[n, m, i, j] = bias[m] + sum over a patch of X times W[m]; with channels last, Y's rows are products of patches.

    Args:
        info: the node.
        kernel: computes what this does not.
        outputs: channels of Y.
        patch: channels, height and width of a patch.
    """

    def __init__(self, info: KernelInfo, kernel: Any, outputs: int, patch: tuple[int, int, int]) -> None:
        super().__init__(info, kernel, outputs, 0)
        self._patch = patch

    def compute(self, *inputs: Any) -> Any:
        """A new array (N, M, rows, columns), channels last."""
        x = inputs[0]
        if not self._takes(x):
            return self._kernel.compute(*inputs)
        size = (x.shape[2] // self._patch[1], x.shape[3] // self._patch[2])
        out = np.empty((x.shape[0], *size, self._outputs), FLOAT)
        self._product(x)(x, *self._constants(inputs), out)
        return np.moveaxis(out, -1, 1)

    def _takes(self, x: HostArray) -> bool:
        channels, height, width = self._patch
        is_picture = x.dtype == FLOAT and x.ndim == 4 and x.size > 0 and x.shape[1] == channels
        return is_picture and x.shape[2] >= height and x.shape[3] >= width

    def _is_signal(self, _shape: tuple[int, ...]) -> bool:
        return True

    def _product(self, x: HostArray) -> _PatchProduct:
        return _PatchProduct(x.shape, self._patch, self._outputs, self._scratch)

    def _arranged(self, weight: HostArray) -> HostArray:
        """(M, elements of a patch)."""
        return np.ascontiguousarray(weight).reshape(self._outputs, -1)


class _PatchProduct:
    """Copies patches and multiplies them. For one thread at a time.

    Args:
        shape: of X.
        patch: channels, height and width of a patch.
        outputs: channels of Y.
        scratch: working memory.
    """

    def __init__(self, shape: tuple[int, ...], patch: tuple[int, int, int], outputs: int, scratch: Scratch) -> None:
        samples, channels, *size = shape
        self._patch, self._scratch = patch, scratch
        self._counts = samples, size[0] // patch[1], size[1] // patch[2]
        rows, inner = math.prod(self._counts), math.prod(patch)
        self._shape = (*self._counts, channels, *patch[1:])
        self._product = CompiledProduct(Sizes(rows, inner, outputs, is_transposed=True), scratch)
        self._threads = threads_for(rows * inner // COPIED_AT_ONCE)
        self._copies: dict[tuple[int, ...], Any] = {}
        """By strides of X."""

    def __call__(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write rows (N, patches, M)."""
        patches, source = self._scratch.array("patches", self._shape, FLOAT), self._patches_of(x)
        copy = self._copy(source, patches)
        if copy is None:
            np.copyto(patches, source)
        else:
            copy.point(0, patches)
            copy.point(1, source)
            copy.run()
        self._product(patches, matrix, bias, out)

    def fixed(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same, with memory of its own for the patches."""
        patches, source = np.empty(self._shape, FLOAT), self._patches_of(x)
        copy = CopyWriter(lambda: [(patches, source)]).fixed()
        return in_turn([copy, self._product.fixed(patches, matrix, bias, out)])

    def _patches_of(self, x: HostArray) -> HostArray:
        """A view (N, rows, columns, channels, height, width of a patch)."""
        samples, rows, columns = self._counts
        channels, height, width = self._patch
        cut = x[:, :, : rows * height, : columns * width]
        return cut.reshape(samples, channels, rows, height, columns, width).transpose(0, 2, 4, 1, 3, 5)

    def _copy(self, source: HostArray, patches: HostArray) -> Any:
        if source.strides not in self._copies:
            made = strided_copy(patches.shape, patches.strides, source.strides, FLOAT.itemsize, self._threads)
            self._copies[source.strides] = made
        return self._copies[source.strides]
