"""Small GEMMs, and batches of them, on arrays that stay: compiled, for any layout with contiguous rows."""

import numpy as np
import pytest
from ort_sdk_cpu.gemm.batched import bound_gemm
from ort_sdk_cpu.gemm.operands import GemmOperands
from ort_sdk_cpu.kernel.activation import Activation, ActivationKind
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot
from ort_sdk_cpu.kernel.task_writer import MIN_ELEMENTS
from ort_sdk_cpu.memory.workspace import shared_workspace
from ort_sdk_cpu.platform import libraries

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="GEMMs are compiled")


def _random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape, dtype=np.float32)


def _heads(*shape):
    """(B, H, T, D) as a view of (B, T, H, D), as attention splits its heads."""
    batch, heads, length, depth = shape
    return _random(batch, length, heads, depth).transpose(0, 2, 1, 3)


def _transposed(*shape):
    return np.matrix_transpose(_heads(*shape))


CASES = {
    "matrices": (_random(7, 40), _random(40, 33)),
    "one row": (_random(1, 40), _random(40, 33)),
    "one column": (_random(70, 40), _random(40, 1)),
    "one column of a stack and a matrix": (_random(2, 3, 25, 96), _random(96, 1)),
    "one column of a matrix and a stack": (_random(70, 96), _random(5, 96, 1)),
    "one column of two stacks": (_random(2, 3, 70, 40), _random(3, 40, 1)),
    "one column of heads": (_heads(2, 4, 25, 24), _random(2, 4, 24, 1)),
    "one column, rows with gaps": (_random(70, 49)[:, :40], _random(40, 1)),
    "one column, transposed": (_random(40, 70).T, _random(40, 1)),
    "one column of a matrix": (_random(70, 40), _random(40, 3)[:, :1]),
    "an inner size of one": (_random(19, 1), _random(1, 33)),
    "a stack and a matrix": (_random(2, 3, 25, 96), _random(96, 64)),
    "a stack apart and a matrix": (_random(2, 3, 25, 96)[:, :2], _random(96, 64)),
    "a matrix and a stack": (_random(25, 96), _random(2, 3, 96, 64)),
    "two stacks": (_random(2, 3, 25, 96), _random(2, 3, 96, 64)),
    "stacks that broadcast": (_random(2, 1, 25, 96), _random(3, 96, 64)),
    "heads and transposed heads": (_heads(1, 4, 25, 24), _transposed(1, 4, 49, 24)),
    "heads of a batch": (_heads(3, 4, 25, 24), _transposed(3, 4, 25, 24)),
    "scores and heads": (_random(3, 4, 25, 25), _heads(3, 4, 25, 24)),
    "few rows, transposed": (_heads(2, 4, 1, 24), _transposed(2, 4, 70, 24)),
    "rows with gaps": (_random(1, 4, 25, 49)[..., :25], _random(1, 4, 25, 24)),
    "a long inner size": (_random(2, 5, 700), _random(2, 700, 40)),
    "large": (_random(3, 130, 260), _random(3, 260, 190)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_products(case, alpha):
    a, b = CASES[case]
    expected = alpha * (a.astype(np.float64) @ b.astype(np.float64))
    out = np.full((*expected.shape[:-1], expected.shape[-1]), np.nan, np.float32)
    call = bound_gemm(GemmOperands(a, b, out, alpha=alpha), shared_workspace())
    assert call is not None
    assert call.native.rows
    for _ in range(2):
        call()
        np.testing.assert_allclose(out, expected, rtol=2e-5, atol=2e-5 * np.sqrt(a.shape[-1]))
        out.fill(np.nan)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        (Activation(ActivationKind.LEAKY_RELU), lambda x: np.maximum(x, 0)),
        (Activation(ActivationKind.LEAKY_RELU, 0.25), lambda x: np.where(x < 0, 0.25 * x, x)),
        (Activation(ActivationKind.SIGMOID), lambda x: 1 / (1 + np.exp(-x))),
        (Activation(ActivationKind.TANH), np.tanh),
    ],
)
@pytest.mark.parametrize("case", ["matrices", "one row", "heads and transposed heads"])
def test_activations(case, activation, function):
    a, b = CASES[case]
    expected = function(0.5 * (a.astype(np.float64) @ b.astype(np.float64)))
    out = np.full(expected.shape, np.nan, np.float32)
    bound_gemm(GemmOperands(a, b, out, alpha=0.5, activation=activation), shared_workspace())()
    np.testing.assert_allclose(out, expected, rtol=2e-5, atol=5e-5)


@pytest.mark.parametrize("addend", [_random(33), _random(1, 33), _random(20, 33), _random(20, 40)[:, :33]])
def test_addends(addend):
    a, b = _random(20, 40), _random(40, 33)
    out = np.empty((20, 33), np.float32)
    call = bound_gemm(GemmOperands(a, b, out, addend, alpha=0.5, beta=2.0), shared_workspace())
    call()
    np.testing.assert_allclose(out, 0.5 * (a.astype(np.float64) @ b) + 2.0 * addend, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("addend", [_random(70, 1), _random(1, 1), _random(70, 3)[:, 1:2]])
def test_addends_of_one_column(addend):
    a, b, out = _random(70, 40), _random(40, 1), np.empty((70, 1), np.float32)
    call = bound_gemm(GemmOperands(a, b, out, addend, 0.5, 2.0, Activation(ActivationKind.LEAKY_RELU)), shared_workspace())
    call()
    expected = np.maximum(0.5 * (a.astype(np.float64) @ b) + 2.0 * addend, 0)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (_random(20, 40).astype(np.float64), _random(40, 33).astype(np.float64)),
        (_random(40, 20).T, _random(40, 33)),
        (_random(20, 40), _random(33, 80)[:, ::2].T),
        (_random(0, 40), _random(40, 33)),
        (_random(40), _random(40, 33)),
        (_heads(2, 4, 3, 8), _transposed(2, 4, 70, 8)),
        (_random(2, 20, 25, 96).transpose(1, 0, 2, 3), _random(1, 96, 64)),
    ],
)
def test_left_to_numpy(a, b):
    out = np.empty(np.matmul(a, b).shape, a.dtype)
    assert bound_gemm(GemmOperands(a, b, out), shared_workspace()) is None


@pytest.fixture
def bound(make_kernel):
    """``bound(op_type, *inputs, **attributes)``: output by a call on arrays that stay, and the call."""

    def run(op_type, *inputs, **attributes):
        kernel = make_kernel(op_type, inputs, attributes, "", None, (), ())
        out = np.full(kernel.compute(*inputs).shape, np.nan, np.float32)
        call = kernel.bind([FixedSlot(array) for array in inputs], [FixedSlot(out)])
        call()
        return out, call

    return run


@pytest.mark.parametrize("case", CASES)
def test_kernels(bound, case):
    a, b = CASES[case]
    found, call = bound("MatMul", a, b)
    np.testing.assert_allclose(found, a.astype(np.float64) @ b, rtol=2e-5, atol=2e-5 * np.sqrt(a.shape[-1]))
    assert (getattr(call, "native", None) is not None) == (found.size * a.shape[-1] >= MIN_ELEMENTS)


@pytest.mark.parametrize(("trans_a", "trans_b"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("addend", [None, (), (30,), (1,), (40, 1), (40, 30)])
def test_gemm(bound, trans_a, trans_b, addend):
    a, b = _random(*((50, 40) if trans_a else (40, 50))), _random(*((30, 50) if trans_b else (50, 30)))
    c = None if addend is None else _random(*addend, seed=2)
    expected = 0.5 * ((a.T if trans_a else a).astype(np.float64) @ (b.T if trans_b else b)) + (0 if c is None else 3.0 * c)
    given = (a, b) if c is None else (a, b, c)
    found, call = bound("Gemm", *given, alpha=0.5, beta=3.0, transA=trans_a, transB=trans_b)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert (getattr(call, "native", None) is not None) == (not trans_a)
