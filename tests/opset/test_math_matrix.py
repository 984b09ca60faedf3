"""Products, determinants and cumulative operators against onnxruntime and NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, InvalidGraph, TensorElementType
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

RNG = np.random.default_rng(6)


def normal(*shape, dtype=np.float32):
    return np.asarray(RNG.normal(size=shape) * 3).astype(dtype)


def run(op_type, inputs, opset, **attributes):
    return run_sdk(*make_model(op_type, inputs, opset=opset, attributes=attributes))[0]


def run_strict(op_type, inputs, opset, **attributes):
    output_types = [TensorElementType.from_numpy_dtype(inputs[0].dtype)]
    return run_kernel(op_type, inputs, output_types, opset=opset, attributes=attributes)[0]


SHAPES = [
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((4,), (4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (4,)),
    ((2, 0, 4), (4, 5)),
    ((2, 3, 0), (0, 5)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint64])
def test_matmul(a, b, dtype):
    inputs = [np.abs(normal(*a)).astype(dtype), np.abs(normal(*b)).astype(dtype)]
    expected = np.matmul(*inputs)
    assert_same(run("MatMul", inputs, 13), expected, 1e-5, 1e-5)
    assert_same(run_strict("MatMul", inputs, 13), expected, 1e-5, 1e-5)


@pytest.mark.parametrize("opset", [1, 9, 13])
def test_matmul_as_onnxruntime(opset):
    compare("MatMul", [normal(2, 3, 4), normal(4, 5)], opset=opset)


@pytest.mark.parametrize("opset", [7, 9, 11, 13])
@pytest.mark.parametrize("bias", [(5,), (3, 1), (1,), (), (3, 5)])
def test_gemm(opset, bias):
    compare("Gemm", [normal(3, 4), normal(4, 5), normal(*bias)], opset=opset)
    attributes = {"transA": 1, "transB": 1, "alpha": 0.5, "beta": -2.0}
    compare("Gemm", [normal(4, 3), normal(5, 4), normal(*bias)], opset=opset, attributes=attributes)


def test_gemm_without_bias():
    compare("Gemm", [normal(3, 4), normal(4, 5)], opset=11, attributes={"alpha": 3.0})


@pytest.mark.parametrize("opset", [1, 6])
def test_gemm_with_broadcast_attribute(opset):
    a, b, c = normal(3, 4), normal(4, 5), normal(5)
    np.testing.assert_allclose(run("Gemm", [a, b, c], opset, broadcast=1, beta=2.0), a @ b + 2 * c, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
def test_gemm_of_integers(dtype):
    a, b, c = (np.abs(normal(*shape)).astype(dtype) for shape in ((3, 4), (4, 5), (5,)))
    expected = np.trunc((a @ b) * 0.5).astype(dtype) + c
    np.testing.assert_array_equal(run("Gemm", [a, b, c], 13, alpha=0.5), expected, strict=True)
    np.testing.assert_array_equal(run_strict("Gemm", [a, b, c], 13, alpha=0.5), expected, strict=True)


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([(3, 4, 1), (4, 5)], "must be matrices"),
        ([(3, 4), (4, 5), (2, 3, 5)], "does not broadcast"),
        ([(1, 4), (4, 5), (3, 5)], "C of"),
    ],
)
def test_gemm_with_wrong_shapes(inputs, text):
    with pytest.raises(InvalidArgument, match=text):
        run_kernel("Gemm", [normal(*shape) for shape in inputs], [TensorElementType.FLOAT], opset=13, library=np)


EQUATIONS = [
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("ij , jk", [(3, 4), (4, 5)]),
    ("bij,bjk", [(2, 3, 4), (2, 4, 5)]),
    ("ij->ji", [(3, 4)]),
    ("ba", [(3, 4)]),
    ("ii->i", [(3, 3)]),
    ("ii", [(3, 3)]),
    ("iji->j", [(3, 4, 3)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("i,j->ij", [(3,), (4,)]),
    ("i,i", [(3,), (3,)]),
    ("ij,ij->", [(3, 4), (3, 4)]),
    ("ijk->k", [(2, 3, 4)]),
    ("...ij,jk->...ik", [(2, 3, 4), (4, 5)]),
    ("...ij,...jk", [(2, 3, 4), (2, 4, 5)]),
    ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ("bhij,bhjd->bihd", [(2, 3, 4, 6), (2, 3, 6, 5)]),
    ("abc,bd,cd->ad", [(2, 3, 4), (3, 5), (4, 5)]),
    ("ab,cd,ef->", [(2, 3), (1, 2), (2, 2)]),
    ("ij,j->ij", [(3, 4), (4,)]),
    ("aB,Bc->ca", [(3, 4), (4, 5)]),
    (",i->i", [(), (3,)]),
    ("i...->...", [(3, 4, 5)]),
    ("ij,ij->ij", [(3, 4), (1, 4)]),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(equation, shapes):
    inputs = [normal(*shape) for shape in shapes]
    expected = np.asarray(np.einsum(equation, *inputs))
    for actual in (run("Einsum", inputs, 12, equation=equation), run_strict("Einsum", inputs, 12, equation=equation)):
        assert_same(actual, expected, 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float64, np.uint16])
def test_einsum_keeps_its_type(dtype):
    inputs = [np.arange(6).astype(dtype).reshape(2, 3), np.arange(6).astype(dtype).reshape(3, 2)]
    assert_same(run("Einsum", inputs, 12, equation="ij,jk->i"), np.einsum("ij,jk->i", *inputs), 1e-12, 0)


@pytest.mark.parametrize(
    ("equation", "error"),
    [
        ("ij,jk->iz", InvalidGraph),
        ("ij,jk->ii", InvalidGraph),
        ("i1,jk->i", InvalidGraph),
        ("ij->i", InvalidArgument),
        ("ijk,jk->i", InvalidArgument),
        ("ij,ik->j", InvalidArgument),
    ],
)
def test_wrong_equations(equation, error):
    with pytest.raises(error):
        run_kernel("Einsum", [normal(3, 4), normal(4, 5)], [TensorElementType.FLOAT], opset=12, attributes={"equation": equation})


@pytest.mark.parametrize("shape", [(3, 3), (2, 5, 4, 4), (1, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_det(shape, dtype):
    x = normal(*shape, dtype=dtype)
    for actual in (run("Det", [x], 22), run_strict("Det", [x], 22)):
        assert_same(actual, np.asarray(np.linalg.det(x.astype(np.float64))).astype(dtype), 1e-4, 1e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_cumulative(dtype, axis, exclusive, reverse):
    inputs = [(normal(3, 4, 5)).astype(dtype), np.array(axis, np.int32)]
    attributes = {"exclusive": exclusive, "reverse": reverse}
    expected = compare("CumSum", inputs, opset=14, attributes=attributes)[0]
    assert_same(run_strict("CumSum", inputs, 14, **attributes), expected, 1e-5, 1e-5)
    x = np.flip(inputs[0], axis) if reverse else inputs[0]
    products = np.cumprod(x.astype(np.float64), axis=axis)
    if exclusive:
        first = np.ones_like(np.take(products, [0], axis))
        products = np.concatenate([first, np.delete(products, -1, axis)], axis)
    products = (np.flip(products, axis) if reverse else products).astype(dtype)
    assert_same(run("CumProd", inputs, 26, **attributes), products, 1e-5, 1e-5)


def test_cumulative_axis_out_of_range():
    with pytest.raises(InvalidArgument, match="axis 2"):
        run("CumSum", [normal(3, 4), np.array(2, np.int64)], 14)
