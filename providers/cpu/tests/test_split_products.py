"""Products of float32 on the processor's matrix unit: numbers in three parts, against exact sums."""

import numpy as np
import pytest
from ort_sdk_cpu import libraries
from ort_sdk_cpu.instruction_set import has_matrix_unit
from ort_sdk_cpu.kernels.compiled_product import SPLIT_ROWS, CompiledProduct, Sizes
from ort_sdk_cpu.kernels.scratch import Scratch

pytestmark = pytest.mark.skipif(
    not libraries.numba().is_usable or not has_matrix_unit(), reason="no compiler, or a processor without a matrix unit"
)

SIZES = [
    (SPLIT_ROWS, 32, 32),
    (SPLIT_ROWS + 1, 31, 33),
    (SPLIT_ROWS + 16, 512, 64),
    (SPLIT_ROWS + 47, 513, 31),
    (300, 40, 97),
    (100, 1100, 160),
    (257, 1, 1),
]


def _product(a, b, bias=None, **options):
    (rows, inner), columns = a.shape, b.shape[1]
    sizes = Sizes(rows, inner, columns)
    assert sizes.is_split
    out = np.full((rows, columns), 7, np.float32)
    CompiledProduct(sizes, Scratch(), **options)(a, b, bias, out)
    return out


def _operands(rows, inner, columns, scale=1.0):
    rng = np.random.default_rng(rows + inner + columns)
    return (
        (rng.standard_normal((rows, inner)) * scale).astype(np.float32),
        rng.standard_normal((inner, columns)).astype(np.float32),
    )


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("threads", [1, 2])
def test_sums_round_off_no_more_than_one_number(sizes, threads):
    a, b = _operands(*sizes)
    bias = np.arange(sizes[2], dtype=np.float32)
    exact = a.astype(np.float64) @ b + bias
    scale = np.abs(a).astype(np.float64) @ np.abs(b) + np.abs(bias)
    found = _product(a, b, bias, most_threads=threads)
    assert (np.abs(found - exact) / scale).max() < 2.0**-22


@pytest.mark.parametrize("exponent", [-60, 0, 60])
def test_numbers_of_any_size_keep_their_24_bits(exponent):
    a, b = _operands(96, 64, 40, 2.0**exponent)
    a[:, 1:] = 0  # one product each: nothing is rounded but the product itself
    np.testing.assert_allclose(_product(a, b), a[:, :1] * b[:1], rtol=2.0**-22)


@pytest.mark.parametrize("operand", [0, 1])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, np.finfo(np.float32).max])
def test_numbers_that_cannot_be_split_give_what_vectors_give(operand, value):
    operands = _operands(96, 200, 70)
    operands[operand][60, 30] = value
    with np.errstate(all="ignore"):
        expected = operands[0] @ operands[1]
    np.testing.assert_allclose(_product(*operands), expected, rtol=1e-4, atol=1e-4)


def test_rows_of_some_kilobytes_apart_are_read_where_they_lie():
    a, b = _operands(130, 1024, 1024)
    np.testing.assert_allclose(_product(a, b), a.astype(np.float64) @ b, rtol=1e-5, atol=1e-4)
