"""Einsum becomes Transpose, Mul or MatMul where that is the same."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import ort_sdk
from tests.optimizer.basic.basic_model import assert_equal_at_levels, basic_ops
from tests.optimizer.extended.fused_graph import FLOAT, build, node

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 6, "f": 2}
DECOMPOSED = (
    *("ab->ba", "abc->cab", "a->a", "ab,bc->ac", "ab,cb->ca", "ab,bc->ca", "abc,cd->abd", "abc,cde->abde", "abcd,cde->abe"),
    *("abcd,cde->eab", "acbd,aced->acbe", "aecd,abcd->acbe", "acbe,aecd->abcd", "abcd,bed->abce", "abcd,ced->abce"),
    *("ab,bc->abc", "ab,ac->abc", "abc,ac->ab", "ab,b->a", "a,ab->b", "a,a->", "ab,ab->", "ab,ab->a", "a,b->ab", "a,b->ba"),
    *(",ab->ab", "ab,->ba", ",->", "abc,abd->acd", "abc,abd->dac", "abc,abde->acde", "abcd,abcd->ab", "abc,adc->abd", "ab,bc"),
    *("ba,bc", "abcd,bef->abcdef", "abcd,abef->efcd", "ab,bc,cd->ad", "abc,dce,afe->adbf", "a,a,a->a", "ab,bc,ca"),
)
LEFT_ALONE = ("ab->a", "aab->ab", "...a,ab->...b", "...a,ab,bc->...c", "ab,cd->a", "aa->a", "ab,cb->c")


def model_of(equation: str, sizes: dict[str, object], element_type: int = FLOAT, opset: int = 13) -> bytes:
    """An Einsum of inputs x, z of the sizes of the labels."""
    terms = equation.replace("...", "").split("->")[0].split(",")
    names = ["x", "z", "w"][: len(terms)]
    inputs = [(name, element_type, [sizes[label] for label in term]) for name, term in zip(names, terms, strict=True)]
    return build([node("Einsum", names, ["y"], equation=equation)], inputs, [("y", element_type, None)], None, opset)


def feeds_for(equation: str, sizes: dict[str, int], dtype: type = np.float32) -> dict[str, np.ndarray]:
    """Random operands."""
    generator = np.random.default_rng(0)
    terms = equation.replace("...", "").split("->")[0].split(",")
    return {
        name: np.asarray(generator.standard_normal([sizes[label] for label in term]), dtype)
        for name, term in zip("xzw", terms, strict=False)
    }


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("equation", DECOMPOSED)
def test_equations_become_products(equation, opset):
    model = model_of(equation, dict(SIZES), opset=opset)
    assert "Einsum" not in basic_ops(model)
    assert_equal_at_levels(model, feeds_for(equation, SIZES))


@pytest.mark.parametrize("equation", LEFT_ALONE)
def test_other_equations_stay(equation):
    model = model_of(equation, dict(SIZES))
    assert basic_ops(model) == ["Einsum"]
    assert_equal_at_levels(model, feeds_for(equation, SIZES))


@pytest.mark.parametrize("equation", ["abc,cd->abd", "abc,cde->abde", "acbd,aced->acbe", "ab,bc->abc", "abcd,bed->abce"])
def test_sizes_may_be_symbols(equation):
    known = {"d", "e"}
    model = model_of(equation, {label: size if label in known else label for label, size in SIZES.items()})
    assert "Einsum" not in basic_ops(model)
    for sizes in (SIZES, {**SIZES, "a": 1, "b": 7, "c": 2}):
        assert_equal_at_levels(model, feeds_for(equation, sizes))


@pytest.mark.parametrize("equation", ["abcd,cde->abe", "ab,abcd->cd"])
def test_what_needs_sizes_that_are_unknown_stays(equation):
    model = model_of(equation, dict.fromkeys(SIZES))
    assert basic_ops(model) == ["Einsum"]
    assert_equal_at_levels(model, feeds_for(equation, SIZES))


@pytest.mark.parametrize("equation", ["ab,bc->ac", "abc,acd->abd", "ab,ab->ab", "abc,ab->ac"])
def test_a_size_of_one_is_repeated(equation):
    one = {**SIZES, "b": 1}
    model = build(
        [node("Einsum", ["x", "z"], ["y"], equation=equation)],
        [("x", FLOAT, [None] * len(equation.split(",")[0])), ("z", FLOAT, [None] * len(equation.split(",")[1].split("->")[0]))],
        [("y", FLOAT, None)],
        None,
        13,
    )
    assert_equal_at_levels(model, {"x": feeds_for(equation, one)["x"], "z": feeds_for(equation, SIZES)["z"]})


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_operands_may_be_empty(shape):
    model = model_of("ab,bc->ac", {"a": "a", "b": "b", "c": 4})
    assert_equal_at_levels(model, {"x": np.zeros(shape, np.float32), "z": np.ones((shape[1], 4), np.float32)})


def test_numbers_may_be_of_another_type():
    model = model_of("ab,bc->ac", dict(SIZES), TensorProto.DOUBLE)
    assert basic_ops(model) == ["MatMul"]
    assert_equal_at_levels(model, feeds_for("ab,bc->ac", SIZES, np.float64), rtol=1e-12, atol=1e-12)
    integers = model_of("ab,bc->ac", dict(SIZES), TensorProto.INT64)
    assert basic_ops(integers) == ["Einsum"]
    assert_equal_at_levels(
        integers, {name: (value * 4).astype(np.int64) for name, value in feeds_for("ab,bc->ac", SIZES).items()}
    )


def test_sizes_that_do_not_fit_are_refused():
    session = ort_sdk.InferenceSession(model_of("ab,bc->ac", {"a": "a", "b": "b", "c": "c"}))
    with pytest.raises(Exception, match=r"(?i)matmul|einsum|shape|size"):
        session.run(None, {"x": np.ones((2, 3), np.float32), "z": np.ones((4, 2), np.float32)})


def test_the_pass_can_be_left_out():
    assert basic_ops(model_of("ab,bc->ac", dict(SIZES)), ["EinsumDecomposition"]) == ["Einsum"]


def test_products_with_weights_are_fused_with_what_follows():
    weight = np.random.default_rng(0).standard_normal((5, 2, 3)).astype(np.float32)
    model = build(
        [node("Einsum", ["x", "w"], ["p"], equation="abc,cde->abde"), node("Add", ["p", "v"], ["y"])],
        [("x", FLOAT, ["n", 4, 5])],
        [("y", FLOAT, None)],
        {"w": weight, "v": weight[0]},
        13,
    )
    assert basic_ops(model) == ["MatMul", "Reshape", "Add"]
    assert_equal_at_levels(model, {"x": np.random.default_rng(1).standard_normal((2, 4, 5)).astype(np.float32)})
