"""8-bit weights less their zero points: as 16 bits give them."""

import numpy as np
import pytest
from ort_sdk_cpu.quantized.conv.centered_weight import CenteredWeight, fits_int8

SHAPE = (5, 3, 2, 2)


@pytest.mark.parametrize("zero_type", [np.uint8, np.int8, np.int16])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("spread", [20, 256])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_values_and_sums(spread, count, dtype, zero_type, is_transposed):
    rng = np.random.default_rng(0)
    middle = 128 if dtype == np.uint8 else 0
    numbers = rng.integers(middle - spread // 2, middle + spread // 2, SHAPE).astype(dtype)
    weight = np.asfortranarray(numbers) if is_transposed else numbers
    limits = np.iinfo(zero_type)
    for zero_points in (np.zeros(count), rng.integers(max(limits.min, middle - 9), min(limits.max, middle + 9) + 1, count)):
        zeros = zero_points.astype(zero_type)
        centered = numbers.astype(np.int16) - zeros.astype(np.int16).reshape(-1, 1, 1, 1)
        is_narrow = centered.min() >= -128 and centered.max() <= 127
        found = CenteredWeight.of(weight, zeros)
        assert fits_int8(weight, zeros) == is_narrow == (found.zero_points is None)
        shifts = 0 if found.zero_points is None else found.zero_points.reshape(-1, 1, 1, 1)
        np.testing.assert_array_equal(found.values.astype(np.int16) - shifts, centered)
        rows = centered.reshape(len(centered), -1).astype(np.int64)
        np.testing.assert_array_equal(found.sums(), rows.sum(axis=1))
        np.testing.assert_array_equal(found.magnitudes(), np.abs(rows).sum(axis=1))
