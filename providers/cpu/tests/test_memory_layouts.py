"""Layouts as values: of arrays of any strides, and beside oneDNN's descriptors of the same memory."""

import numpy as np
import pytest
from ort_sdk_cpu.kernel.layouts.memory import Layout, channels_last, contiguous, is_channels_last, is_nhwc, layout_of
from ort_sdk_cpu.onednn.library import is_available
from ort_sdk_cpu.onednn.memory_descriptor import described

SHAPES = [(2, 3, 4, 5), (1, 3, 4, 5), (2, 1, 4, 5), (2, 3, 1, 1), (3, 5), (7,), (2, 3, 2, 4, 5)]


def arrays(shape):
    base = np.zeros(shape, np.float32)
    wide = np.zeros((*shape[:-1], 2 * shape[-1]), np.float32)
    found = [base, np.asfortranarray(base), wide[..., ::2], wide[..., : shape[-1]]]
    return [*found, np.moveaxis(np.zeros((shape[0], *shape[2:], shape[1]), np.float32), -1, 1)] if len(shape) > 1 else found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_strides_of_an_array_are_those_of_its_layout(shape):
    for array in arrays(shape):
        layout = layout_of(array)
        assert (layout.shape, layout.dtype) == (array.shape, array.dtype)
        axes = zip(layout.byte_strides, array.strides, array.shape, strict=True)
        assert all(own == given for own, given, size in axes if size > 1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_memory_order_is_told(shape):
    row_major, *_, nhwc = arrays(shape)
    assert layout_of(row_major).is_same_layout(contiguous(shape, row_major.dtype))
    if len(shape) > 2:
        assert layout_of(nhwc).is_same_layout(channels_last(shape, nhwc.dtype))
        assert is_nhwc(nhwc)
        assert is_channels_last(nhwc) != nhwc.flags.c_contiguous


def test_what_no_layout_describes():
    overlapping = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (4, 4), (4, 4))
    unaligned = np.zeros(33, np.uint8)[1:].view(np.float32)
    between = np.zeros((4, 6), np.uint8)[:, :4].view(np.float32)
    assert [layout_of(array) for array in (overlapping, unaligned, between)] == [None] * 3


@pytest.mark.skipif(not is_available(), reason="no oneDNN")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bytes_and_equality_agree_with_onednn(shape):
    layouts = [layout_of(array) for array in arrays(shape)]
    layouts.append(Layout(shape, tuple(7 * stride for stride in layouts[0].strides), np.dtype(np.float32)))
    for layout in layouts:
        assert layout.nbytes == described(layout).nbytes
        for other in layouts:
            assert layout.is_same_layout(other) == described(layout).is_same_layout(described(other))
