"""Host memory that programs share."""

import numpy as np

from ort_sdk.api import TensorElementType
from ort_sdk.memory import Arena


def test_views_are_aligned_and_earlier_ones_survive_growth():
    arena = Arena()
    first = Arena.view(arena.reserve(100), 0, (5, 5), TensorElementType.FLOAT)
    first[...] = 7
    second = Arena.view(arena.reserve(10_000), 64, (10,), TensorElementType.DOUBLE)
    second[...] = 1
    assert first.ctypes.data % 64 == 0
    assert second.ctypes.data % 64 == 0
    assert np.all(first == 7)
