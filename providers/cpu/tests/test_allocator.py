"""Memory of the CPU provider."""

import numpy as np
from ort_sdk_cpu.memory.allocator import CpuAllocator

from ort_sdk.api import OrtMemoryInfo, TensorElementType


def test_arrays_are_aligned_and_of_the_shape_asked():
    allocator = CpuAllocator(OrtMemoryInfo())
    for shape in ((), (0,), (3, 5), (2, 0, 4)):
        array = allocator.allocate(shape, TensorElementType.FLOAT)
        assert array.shape == shape
        assert array.dtype == np.float32
        assert not array.size or array.ctypes.data % 64 == 0


def test_memory_of_a_large_result_is_used_again_when_nobody_holds_it():
    allocator = CpuAllocator(OrtMemoryInfo())
    first = allocator.allocate_result((64, 1024), TensorElementType.FLOAT)
    second = allocator.allocate_result((64, 1024), TensorElementType.FLOAT)
    assert first.shape == second.shape == (64, 1024)
    assert not np.may_share_memory(first, second)
    view, address = first[3:], first.ctypes.data
    del first
    assert not np.may_share_memory(view, allocator.allocate_result((64, 1024), TensorElementType.FLOAT))
    del view
    assert allocator.allocate_result((64, 1024), TensorElementType.FLOAT).ctypes.data == address
    assert allocator.allocate_result((3, 5), TensorElementType.INT64).dtype == np.int64
