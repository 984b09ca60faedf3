"""Memory of the CPU provider."""

import numpy as np
from ort_sdk_cpu.allocator import CpuAllocator

from ort_sdk.api import OrtMemoryInfo, TensorElementType


def test_arrays_are_aligned_and_of_the_shape_asked():
    allocator = CpuAllocator(OrtMemoryInfo())
    for shape in ((), (0,), (3, 5), (2, 0, 4)):
        array = allocator.allocate(shape, TensorElementType.FLOAT)
        assert array.shape == shape
        assert array.dtype == np.float32
        assert not array.size or array.ctypes.data % 64 == 0
