"""Which algorithm a pooling problem gets."""

import numpy as np
import pytest
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.pool.select import PoolAlgorithm, PoolProblem, select_pool, select_with_indices

from ort_sdk.opset.nn.windows import Windows

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba cannot be used")


def windows(size, kernel, stride=1, pad=0):
    out = tuple((each + 2 * pad - kernel) // stride + 1 for each in size)
    kernels, strides, dilations, pads = (((value,) * len(size)) for value in (kernel, stride, 1, pad))
    return Windows(tuple(size), kernels, strides, dilations, pads, pads, out)


def selected(shape, kernel=3, layout="nchw", dtype=np.float32, **given):
    problem = PoolProblem(
        shape=shape,
        dtype=np.dtype(dtype),
        windows=windows(shape[2:], kernel),
        is_maximum=given.pop("is_maximum", True),
        is_global=given.pop("is_global", False),
        is_contiguous=layout == "nchw",
        is_channels_last=layout == "nhwc",
        **given,
    )
    return select_pool(problem)


@pytest.mark.parametrize("is_maximum", [True, False])
@pytest.mark.parametrize("shape", [(1, 8, 200), (2, 3, 40, 40), (1, 4, 8, 16, 16)])
def test_contiguous_float32_is_pooled_as_it_is(shape, is_maximum):
    assert selected(shape, is_maximum=is_maximum) is PoolAlgorithm.NCHW


def test_channels_last_stays_so():
    assert selected((2, 3, 40, 40), layout="nhwc") is PoolAlgorithm.NHWC
    assert selected((2, 3, 40, 40), layout="nhwc", is_maximum=False) is PoolAlgorithm.ONEDNN
    assert selected((2, 3, 40, 40), layout="nhwc", dtype=np.uint8) is PoolAlgorithm.ONEDNN


def test_other_layouts_are_copied_for_many_reads_of_many_channels():
    assert selected((1, 16, 60, 60), layout="other") is PoolAlgorithm.NHWC
    assert selected((1, 16, 60, 60), layout="other", is_maximum=False) is PoolAlgorithm.ONEDNN
    assert selected((1, 7, 120, 120), layout="other") is PoolAlgorithm.NUMPY
    assert selected((1, 16, 30, 30), layout="other") is PoolAlgorithm.NUMPY
    assert selected((1, 16, 60, 60), dtype=np.int8) is PoolAlgorithm.ONEDNN
    assert selected((1, 4, 60, 60), dtype=np.int8) is PoolAlgorithm.NUMPY


def test_few_windows_go_channel_by_channel():
    negative = windows((12, 12), 3, pad=0)
    negative = Windows(**{name: getattr(negative, name) for name in negative.__slots__} | {"pads_begin": (-1, 0)})
    few = PoolProblem((1, 2, 12, 12), np.dtype(np.float32), negative, True, False, True, False)
    assert select_pool(few) is PoolAlgorithm.SINGLE_CHANNEL
    assert selected((1, 2, 12, 12), layout="other") is PoolAlgorithm.SINGLE_CHANNEL
    assert selected((1, 2, 12, 12), layout="other", is_maximum=False) is PoolAlgorithm.NUMPY
    assert selected((1, 4, 20, 20), layout="other") is PoolAlgorithm.NUMPY


def test_global_pooling_is_a_reduction():
    for is_maximum in (True, False):
        assert selected((2, 8, 20, 20), is_global=True, is_maximum=is_maximum) is PoolAlgorithm.REDUCTION
        assert selected((2, 8, 20, 20), layout="nhwc", is_global=True, is_maximum=is_maximum) is PoolAlgorithm.REDUCTION
    assert selected((2, 8, 20, 20), is_global=True, dtype=np.float64) is PoolAlgorithm.NUMPY
    assert selected((2, 8, 20, 20), layout="nhwc", is_global=True, dtype=np.uint8) is PoolAlgorithm.ONEDNN


def test_without_a_kernel_of_channels_last():
    assert selected((2, 3, 40, 40), has_nhwc=False) is PoolAlgorithm.NCHW
    assert selected((2, 3, 40, 40), layout="nhwc", has_nhwc=False) is PoolAlgorithm.NUMPY
    assert selected((2, 8, 20, 20), is_global=True, has_nhwc=False) is PoolAlgorithm.NUMPY


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_other_types_and_ranks_are_numpys(dtype):
    assert selected((2, 3, 40, 40), dtype=dtype) is PoolAlgorithm.NUMPY
    assert selected((2, 3, 9, 9, 9, 9)) is PoolAlgorithm.NUMPY
    assert selected((0, 3, 40, 40)) is PoolAlgorithm.NUMPY


def test_indices_need_an_element_in_each_window():
    x = np.zeros((1, 4, 20, 20), np.float32)
    assert select_with_indices(x, windows((20, 20), 3)) is PoolAlgorithm.WITH_INDICES
    assert select_with_indices(x, windows((20, 20), 2, stride=2, pad=2)) is PoolAlgorithm.NUMPY
    assert select_with_indices(x.astype(np.float64), windows((20, 20), 3)) is PoolAlgorithm.NUMPY
    assert select_with_indices(x[:, :, :, :, None], windows((20, 20, 1), 1)) is PoolAlgorithm.NUMPY
