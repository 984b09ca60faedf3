"""Products of matrices on the device layer against NumPy in float64, in the forms for processors and for GPUs."""

import math

import ml_dtypes
import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.device.expressions.nodes import resolved
from ort_sdk.device.launches import MOST_DERIVED

from .device_contexts import CLASSES, host, launches_of, namespace

pytestmark = pytest.mark.opencl

EPSILON = {"f4": 2.0**-24, "f2": 2.0**-11, "bf16": 2.0**-8}
"""Half a unit in the last place of 1."""
SIZES = [
    (1, 1, 1),
    (1, 7, 40),
    (2, 64, 33),
    (3, 300, 100),
    (4, 65, 31),
    (5, 9, 32),
    (7, 513, 64),
    (9, 20, 300),
    (13, 129, 257),
    (33, 1030, 17),
    (64, 300, 200),
    (65, 70, 130),
]
"""m, k, n: below, at and above what panels, tiles, blocks of rows and parts of terms take."""


@pytest.fixture(params=CLASSES)
def xp(request):
    return namespace(request.param)


def _floats(shape, dtype="f4", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bf16" else dtype)


def _assert_product(found, a, b, stored="f4", extra=0.0):
    """Sums of k products are off by at most k roundings of the sum of magnitudes, and by one of what is stored."""
    a, b = np.asarray(a, "f8"), np.asarray(b, "f8")
    wanted, magnitudes = a @ b, np.abs(a) @ np.abs(b)
    error = np.abs(np.asarray(found, "f8") - (wanted + extra))
    assert error.shape == wanted.shape
    assert (error <= (a.shape[-1] + 4) * EPSILON["f4"] * (magnitudes + np.abs(extra)) + EPSILON[stored] * np.abs(wanted)).all()


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
@pytest.mark.parametrize("transposed", ["", "a", "b", "ab"])
def test_sizes_and_transposed_operands(xp, m, k, n, transposed):
    a = _floats((k, m) if "a" in transposed else (m, k))
    b = _floats((n, k) if "b" in transposed else (k, n), seed=1)
    left, right = xp.from_host(a), xp.from_host(b)
    if "a" in transposed:
        a, left = a.T, left.T
    if "b" in transposed:
        b, right = b.T, right.T
    _assert_product(host(left @ right), a, b)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 5, 7), (7, 40)),
        ((5, 7), (3, 7, 40)),
        ((2, 3, 5, 7), (2, 3, 7, 40)),
        ((2, 1, 5, 7), (3, 7, 40)),
        ((2, 1, 4, 1, 9, 7), (3, 1, 2, 7, 33)),
        ((7,), (7, 40)),
        ((5, 7), (7,)),
        ((3, 2, 7), (7,)),
    ],
)
def test_batches_broadcast(xp, left, right):
    a, b = _floats(left), _floats(right, seed=1)
    found = host(xp.matmul(xp.from_host(a), xp.from_host(b)))
    wanted = np.matmul(a.astype("f8"), b.astype("f8"))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_strides_of_every_kind(xp):
    a, b = _floats((6, 40, 60)), _floats((50, 6, 80), seed=1)
    left, right = xp.from_host(a)[::2, ::-1, 3:53:2], xp.permute_dims(xp.from_host(b), (1, 0, 2))[::2, ::-2, 5:75]
    a, b = a[::2, ::-1, 3:53:2], b.transpose(1, 0, 2)[::2, ::-2, 5:75]
    _assert_product(host(left @ right), a, b)


@pytest.mark.parametrize("dtype", ["f2", "bf16"])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 100, 50), (3, 70, 33), (20, 300, 70)])
def test_halves_are_summed_in_float32(xp, dtype, m, k, n):
    a, b = _floats((m, k), dtype), _floats((k, n), dtype, seed=1)
    found = xp.from_host(a) @ xp.from_host(b)
    assert found.dtype == a.dtype
    _assert_product(host(found), a, b, dtype)


def test_halves_behind_a_cast_give_float32(xp):
    a, b = _floats((20, 300), "f2"), _floats((300, 70), "f2", seed=1)
    left, right = (xp.astype(xp.from_host(each), TensorElementType.FLOAT) for each in (a, b))
    _assert_product(host(left @ right), a, b)


@pytest.mark.parametrize("dtype", ["f8", "i4", "i8", "u1", "i2"])
def test_other_types_are_exact_or_wrap_around(xp, dtype):
    generator = np.random.default_rng(0)
    a, b = (generator.integers(0, 90, shape).astype(dtype) for shape in ((3, 9, 50), (50, 70)))
    np.testing.assert_array_equal(host(xp.from_host(a) @ xp.from_host(b)), a @ b)


@pytest.mark.parametrize(("m", "k", "n"), [(1, 300, 40), (33, 1000, 70), (9, 31000, 5)])
def test_products_of_bytes_in_float64_are_exact(xp, monkeypatch, m, k, n):
    """As the quantized operators compute them; every magnitude at its largest makes the largest sums."""
    a, b = np.full((m, k), 255, "u1"), np.full((k, n), 0, "u1")
    b[:, ::2] = 255
    a[:, 1::3] = 7
    zero = np.asarray(255, "u1")
    double = TensorElementType.DOUBLE
    left = xp.astype(xp.from_host(a), double)
    right = xp.astype(xp.from_host(b), double) - xp.astype(xp.from_host(zero), double)
    found = left @ right
    assert found.dtype == np.float64
    np.testing.assert_array_equal(host(found), a.astype("i8") @ (b.astype("i8") - 255))


@pytest.mark.parametrize(("left", "right"), [((0, 5), (5, 3)), ((4, 5), (5, 0)), ((2, 0, 5), (5, 3)), ((4, 0), (0, 3))])
def test_empty_axes(xp, left, right):
    a, b = _floats(left), _floats(right)
    found = host(xp.from_host(a) @ xp.from_host(b))
    np.testing.assert_array_equal(found, a @ b)


def test_sizes_that_do_not_fit_are_refused(xp):
    a = xp.from_host(_floats((2, 3)))
    with pytest.raises(InvalidArgument, match=r"\[2, 3\] and \[2, 3\]: inner sizes differ"):
        a @ a
    with pytest.raises(InvalidArgument, match="scalars are none"):
        a @ xp.from_host(np.asarray(1, "f4"))


@pytest.mark.parametrize(("m", "n"), [(1, 40), (3, 33), (7, 16), (12, 15), (33, 130)])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_what_follows_is_computed_by_the_kernel_that_multiplies(xp, monkeypatch, m, n, dtype):
    k = 64
    a, b = _floats((2, m, k), dtype), _floats((k, n), dtype, seed=1)
    bias, rest = _floats((n,), dtype, seed=2), _floats((2, m, n), dtype, seed=3)
    values = [xp.from_host(each) for each in (a, b, bias, rest)]
    single = [xp.astype(each, TensorElementType.FLOAT) for each in values]
    result = xp.maximum(single[0] @ single[1] + single[2], xp.asarray(0, dtype=np.dtype("f4"))) + single[3]
    result = xp.astype(result, values[0].element_type)
    single.clear()
    names = launches_of(xp, monkeypatch)
    found = host(result)
    assert "elementwise" not in [name for name in names if name != "pack"]
    a, b, bias, rest = (each.astype("f8") for each in (a, b, bias, rest))
    wanted = np.maximum(a @ b + bias, 0) + rest
    bound = (k + 8) * EPSILON["f4"] * (np.abs(a) @ np.abs(b) + np.abs(bias) + np.abs(rest)) + EPSILON[dtype] * np.abs(wanted)
    assert (np.abs(found - wanted) <= bound).all()


def test_what_follows_a_reshape_is_computed_by_the_kernel_too(xp, monkeypatch):
    a, b, rest = _floats((6, 40)), _floats((40, 20), seed=1), _floats((2, 3, 20), seed=2)
    scale = _floats((2, 1, 1), seed=3)
    values = [xp.from_host(each) for each in (a, b, rest, scale)]
    result = xp.reshape(values[0] @ values[1], (2, 3, 20)) * values[3] + values[2]
    names = launches_of(xp, monkeypatch)
    np.testing.assert_allclose(host(result), (a.astype("f8") @ b).reshape(2, 3, 20) * scale + rest, rtol=1e-5, atol=1e-5)
    assert "elementwise" not in names


def test_a_result_that_several_read_is_computed_once(xp, monkeypatch):
    a, b = _floats((20, 30)), _floats((30, 40), seed=1)
    product = xp.from_host(a) @ xp.from_host(b)
    first, second = product + 1.0, product * 2.0
    reshaped = xp.reshape(product, (4, 5, 40))
    del product
    names = launches_of(xp, monkeypatch)
    wanted = a.astype("f8") @ b
    np.testing.assert_allclose(host(first), wanted + 1, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(host(second), wanted * 2, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(host(reshaped), wanted.reshape(4, 5, 40), rtol=1e-5, atol=1e-5)
    assert names.count("product") == 1


def test_two_products_in_one_expression(xp):
    a, b, c = _floats((20, 30)), _floats((30, 40), seed=1), _floats((30, 40), seed=2)
    left = xp.from_host(a)
    result = (left @ xp.from_host(b)) * (left @ xp.from_host(c))
    np.testing.assert_allclose(host(result), (a.astype("f8") @ b) * (a.astype("f8") @ c), rtol=1e-4, atol=1e-4)


def test_writing_to_an_operand_leaves_products_made_before(xp):
    a, b = _floats((20, 20)), _floats((20, 20), seed=1)
    left = xp.from_host(a.copy())
    product = left @ xp.from_host(b)
    left[:, :] = 0.0
    np.testing.assert_allclose(host(product), a.astype("f8") @ b, rtol=1e-5, atol=1e-5)


def test_a_product_may_be_written_over_its_operand(xp):
    a, b = _floats((20, 20)), _floats((20, 20), seed=1)
    left = xp.from_host(a.copy())
    left[:, :] = left @ xp.from_host(b) + left
    np.testing.assert_allclose(host(left), a.astype("f8") @ b + a, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["f4", "f2", "u1"])
def test_what_is_made_of_a_constant_is_made_once(monkeypatch, dtype):
    """Panels of the columns, and numbers less their zero point."""
    xp = namespace("own")
    if not xp.context.device.is_cpu:
        pytest.skip("panels are for processors")
    a, b = _floats((20, 30)), (_floats((30, 40), seed=1) * 9).astype(dtype)
    left, right = xp.from_host(a), xp.from_host(b)
    resolved(right.node).memory.is_constant = True

    def product():
        weight = xp.astype(right, TensorElementType.FLOAT)
        return left @ (weight if dtype != "u1" else weight * 3.0)

    wanted = a.astype("f8") @ (b.astype("f8") * (3 if dtype == "u1" else 1))
    np.testing.assert_allclose(host(product()), wanted, rtol=1e-3, atol=1e-3)
    names = launches_of(xp, monkeypatch)
    np.testing.assert_allclose(host(product()), wanted, rtol=1e-3, atol=1e-3)
    assert names == ["product"]


def test_a_constant_stack_is_packed_once_for_batches_of_any_size(monkeypatch):
    xp = namespace("own")
    if not xp.context.device.is_cpu:
        pytest.skip("panels are for processors")
    b = _floats((3, 30, 40))
    right = xp.from_host(b)
    resolved(right.node).memory.is_constant = True
    names = launches_of(xp, monkeypatch)
    for batch in range(1, 6):
        a = _floats((batch, 3, 20, 30), seed=batch)
        _assert_product(host(xp.from_host(a) @ right), a, b)
    assert names.count("pack") == 1
    assert len(resolved(right.node).memory.derived) == 1


def test_what_is_kept_of_a_constant_has_an_end():
    """An expression of constants may have the shape of a run."""
    xp = namespace("own")
    b = _floats((50, 40))
    right = xp.from_host(b)
    memory = resolved(right.node).memory
    memory.is_constant = True
    for rows in range(1, 51):
        a = _floats((7, rows), seed=rows)
        _assert_product(host(xp.from_host(a) @ (right[:rows, :] * 2.0)), a, 2 * b[:rows])
    assert len(memory.derived) <= MOST_DERIVED


def test_random_products(xp):
    generator = np.random.default_rng(5)
    for case in range(30):
        m, k, n = (int(generator.integers(1, most)) for most in (70, 90, 140))
        outer, inner = generator.integers(1, 4, 2)
        a = _floats((outer, 1 if case % 3 else inner, m, k), seed=case)
        b = _floats((inner, k, n) if case % 2 else (outer, inner, k, n), seed=case + 100)
        found = host(xp.from_host(a) @ xp.from_host(b))
        wanted = np.matmul(a.astype("f8"), b.astype("f8"))
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() <= 1e-6 * math.sqrt(k) * 30
