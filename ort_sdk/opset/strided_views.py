"""Views with any steps, which NumPy makes without a look at the memory below them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_sdk.api import ExtentError, HostArray

__all__ = ["byte_span", "strided_view"]


def byte_span(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """The bytes that elements take, counted from the first element's address: of the lowest, and behind the highest.

    Args:
        shape: sizes.
        strides: steps in bytes; negative or 0 ones, too.
        itemsize: bytes of an element.
    """
    if 0 in shape:
        return 0, 0
    low = high = 0
    for size, stride in zip(shape, strides, strict=True):
        reach = (int(size) - 1) * int(stride)
        if reach < 0:
            low += reach
        else:
            high += reach
    return low, high + itemsize


def strided_view(array: HostArray, shape: Sequence[int], strides: Sequence[int]) -> HostArray:
    """A view that cannot be written to, of elements that are all within the array's extent.

    Args:
        array: whose first element is the view's.
        shape: sizes.
        strides: steps in bytes.

    Raises:
        ExtentError: a size is negative, or an element is before the array's lowest byte or behind its highest.
    """
    low, high = byte_span(shape, strides, array.itemsize)
    lowest, highest = byte_span(array.shape, array.strides, array.itemsize)
    if min(shape, default=0) < 0 or low < lowest or high > highest:
        raise ExtentError(
            f"A view of shape {tuple(shape)} with steps of {tuple(strides)} bytes takes bytes {low} to {high} of an array "
            f"of shape {array.shape} with steps of {array.strides} bytes, which has bytes {lowest} to {highest}."
        )
    view: HostArray = np.lib.stride_tricks.as_strided(array, shape, strides, writeable=False)
    return view
