"""Copies between layouts by compiled tasks: every element goes to its place, and nothing else is written."""

import itertools

import numpy as np
import pytest
from ort_sdk_cpu.kernel.layouts.strided_copy import strided_copy
from ort_sdk_cpu.platform import libraries

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

SHAPES = [(5,), (1,), (3, 40), (16, 16), (17, 33), (2, 3, 40), (1, 128, 16), (2, 19, 5, 7), (2, 3, 4, 5, 6), (3, 1, 64, 1, 20)]


def lying(shape, order, dtype, spare):
    """A view of a shape whose axes lie in an order, with ``spare`` elements behind each axis, and all of its memory."""
    memory = np.full([shape[axis] + spare for axis in order], 7, dtype)
    return memory.transpose(np.argsort(order))[tuple(slice(0, size) for size in shape)], memory


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, np.uint8])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_any_order(dtype, threads, shape):
    rng, copied = np.random.default_rng(0), 0
    rank = len(shape)
    for order, turned, spare in itertools.product(itertools.permutations(range(rank)), (False, True), (0, 1)):
        source, _ = lying(shape, order, dtype, spare)
        source[...] = rng.integers(0, 251, shape)
        target, memory = lying(shape, tuple(reversed(range(rank))) if turned else tuple(range(rank)), dtype, spare)
        task = strided_copy(shape, target.strides, source.strides, target.itemsize, threads)
        if task is None:
            assert dtype != np.float32
            continue
        copied += 1
        expected = memory.copy()
        np.ndarray(shape, dtype, expected, strides=target.strides)[...] = source
        task.point(0, target)
        task.point(1, source)
        task.run()
        np.testing.assert_array_equal(memory, expected)
    assert copied


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("channels", [3, 4])
def test_channels_of_pixels(dtype, channels):
    source = np.random.default_rng(0).integers(0, 251, (2, 3, 4099, channels)).astype(dtype)
    target = np.empty((2, channels, 3, 4099), dtype)
    for threads, width in ((2, 4099), (1, 64), (1, 130)):
        pixels, planes = source[:, :, :width].transpose(0, 3, 1, 2), target[..., :width]
        target.fill(7)
        task = strided_copy(planes.shape, planes.strides, pixels.strides, target.itemsize, threads)
        task.point(0, planes)
        task.point(1, pixels)
        task.run()
        np.testing.assert_array_equal(planes, pixels)
        assert (target[..., width:] == 7).all()


def test_an_axis_that_is_repeated():
    source = np.arange(40, dtype=np.float32)
    target = np.empty((3, 40), np.float32)
    task = strided_copy(target.shape, target.strides, (0, 4), 4)
    task.point(0, target)
    task.point(1, source)
    task.run()
    np.testing.assert_array_equal(target, np.broadcast_to(source, (3, 40)))


def test_what_has_no_task():
    assert strided_copy((3, 4), (4, 1), (1, 3), 1) is None
    assert strided_copy((3, 0), (4, 4), (4, 4), 4) is None
    sizes = (2,) * 6
    assert strided_copy(sizes, (128, 64, 32, 16, 8, 4), (4, 8, 16, 32, 64, 128), 4) is None
