"""Attention over heads, a whole transformer layer, and softmax with a bias."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimizer.extended.fused_graph import FLOAT, assert_same_results, build, f32, node, op_types, optimized

RNG = np.random.default_rng(4)
BATCH, LENGTH, HEADS, SIZE = 2, 5, 3, 4
WIDTH = HEADS * SIZE
CONSTANTS = {
    "split": np.array([0, 0, HEADS, SIZE]),
    "merge": np.array([0, 0, WIDTH]),
    "root": f32(2.0),
    "scale": f32(0.5),
    "rootscale": f32(0.5**0.5),
}
FULL = [BATCH, 1, LENGTH, LENGTH]


def heads(name, perm):
    return [
        node("Reshape", [name, "split"], [f"{name}_r"]),
        node("Transpose", [f"{name}_r"], [f"{name}_h"], perm=perm),
    ]


def scaled(form):
    """Nodes from q_h, k_h to the scaled scores."""
    if form == "none":
        return [node("MatMul", ["q_h", "k_h"], ["scores"])]
    if form == "div":
        return [node("MatMul", ["q_h", "k_h"], ["raw"]), node("Div", ["raw", "root"], ["scores"])]
    if form == "query":
        return [node("Mul", ["q_h", "scale"], ["qs"]), node("MatMul", ["qs", "k_h"], ["scores"])]
    return [
        node("Mul", ["q_h", "rootscale"], ["qs"]),
        node("Mul", ["k_h", "rootscale"], ["ks"]),
        node("MatMul", ["qs", "ks"], ["scores"]),
    ]


def core(form="div", masked=True, result="y"):
    scores = "masked" if masked else "scores"
    return [
        *scaled(form),
        *([node("Add", ["scores", "mask"], ["masked"])] if masked else []),
        node("Softmax", [scores], ["weights"], axis=-1),
        node("MatMul", ["weights", "v_h"], ["attended"]),
        node("Transpose", ["attended"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "merge"], [result]),
    ]


def attention(form="div", masked=True, mask_shape=FULL, key_perm=(0, 2, 3, 1), batch=BATCH, **changes):
    perms = {"q": (0, 2, 1, 3), "k": key_perm, "v": (0, 2, 1, 3)}
    nodes = [made for name, perm in perms.items() for made in heads(name, perm)]
    values = [(name, FLOAT, [batch, LENGTH, WIDTH]) for name in perms]
    values += [("mask", FLOAT, mask_shape)] if masked else []
    return build([*nodes, *core(form, masked)], values, [("y", FLOAT, [batch, LENGTH, WIDTH])], CONSTANTS | changes)


@pytest.mark.parametrize("form", ["none", "div", "query", "both"])
@pytest.mark.parametrize("masked", [True, False])
def test_attention(form, masked):
    model = attention(form, masked)
    assert op_types(model) == ["MultiHeadAttention"]
    assert optimized(model).nodes[0].attributes["scale"] == pytest.approx(1.0 if form == "none" else 0.5)
    assert_same_results(model)


@pytest.mark.parametrize("mask_shape", [[1, 1, LENGTH, LENGTH], [BATCH, HEADS, LENGTH, LENGTH]])
def test_masks(mask_shape):
    model = attention(mask_shape=mask_shape)
    assert op_types(model) == ["MultiHeadAttention"]
    assert_same_results(model)


def test_attention_of_a_symbolic_batch():
    model = attention(batch="batch", mask_shape=["batch", 1, LENGTH, LENGTH])
    assert op_types(model) == ["MultiHeadAttention"]
    assert_same_results(model)


@pytest.mark.parametrize("mask_shape", [[BATCH, 1, 1, LENGTH], [1, HEADS, 1, LENGTH], [1, 1, 1, 1]])
@pytest.mark.parametrize("batch", [BATCH, "batch"])
def test_masks_for_all_queries_are_repeated(mask_shape, batch):
    model = attention(batch=batch, mask_shape=[batch if size == BATCH else size for size in mask_shape])
    assert sorted(op_types(model)) == ["Expand", "MultiHeadAttention"]
    assert_same_results(model)


@pytest.mark.parametrize("mask_shape", [[LENGTH], [1, LENGTH, LENGTH]])
def test_masks_of_other_shapes_are_left(mask_shape):
    model = attention(mask_shape=mask_shape)
    assert "MultiHeadAttention" not in op_types(model)
    assert_same_results(model)


def test_keys_of_one_batch_are_left():
    nodes = [*heads("q", (0, 2, 1, 3)), *heads("k", (0, 2, 3, 1)), *heads("v", (0, 2, 1, 3)), *core(masked=False)]
    values = [("q", FLOAT, [BATCH, LENGTH, WIDTH]), ("k", FLOAT, [1, LENGTH, WIDTH]), ("v", FLOAT, [1, LENGTH, WIDTH])]
    model = build(nodes, values, [("y", FLOAT, [BATCH, LENGTH, WIDTH])], CONSTANTS)
    assert "MultiHeadAttention" not in op_types(model)
    assert_same_results(model)


def test_scores_that_are_an_output_are_left():
    perms = {"q": (0, 2, 1, 3), "k": (0, 2, 3, 1), "v": (0, 2, 1, 3)}
    nodes = [made for name, perm in perms.items() for made in heads(name, perm)]
    values = [(name, FLOAT, [BATCH, LENGTH, WIDTH]) for name in perms] + [("mask", FLOAT, FULL)]
    model = build([*nodes, *core()], values, [("y", FLOAT, None), ("weights", FLOAT, None)], CONSTANTS)
    assert "MultiHeadAttention" not in op_types(model)
    assert_same_results(model)


def layer_norm(x, prefix, result):
    names = {key: f"{prefix}_{key}" for key in "mdpvern"}
    return [
        node("ReduceMean", [x], [names["m"]], axes=[-1]),
        node("Sub", [x, names["m"]], [names["d"]]),
        node("Pow", [names["d"], "two"], [names["p"]]),
        node("ReduceMean", [names["p"]], [names["v"]], axes=[-1]),
        node("Add", [names["v"], "eps"], [names["e"]]),
        node("Sqrt", [names["e"]], [names["r"]]),
        node("Div", [names["d"], names["r"]], [names["n"]]),
        node("Mul", [names["n"], f"{prefix}_scale"], [f"{prefix}_w"]),
        node("Add", [f"{prefix}_w", f"{prefix}_bias"], [result]),
    ]


def linear(x, name, result):
    return [node("MatMul", [x, f"{name}_weight"], [f"{name}_p"]), node("Add", [f"{name}_bias", f"{name}_p"], [result])]


def transformer_layer():
    """A BERT layer as PyTorch writes it out."""
    nodes = [*linear("x", "query", "q"), *linear("x", "key", "k"), *linear("x", "value", "v")]
    nodes += [*heads("q", (0, 2, 1, 3)), *heads("k", (0, 2, 3, 1)), *heads("v", (0, 2, 1, 3)), *core(result="context")]
    nodes += [*linear("context", "dense", "projected"), node("Add", ["projected", "x"], ["sum1"])]
    nodes += [*layer_norm("sum1", "ln1", "normed"), *linear("normed", "up", "wide")]
    nodes += [
        node("Div", ["wide", "root2"], ["g1"]),
        node("Erf", ["g1"], ["g2"]),
        node("Add", ["g2", "one"], ["g3"]),
        node("Mul", ["wide", "g3"], ["g4"]),
        node("Mul", ["g4", "half"], ["activated"]),
    ]
    nodes += [*linear("activated", "down", "narrow"), node("Add", ["narrow", "normed"], ["sum2"])]
    return [*nodes, *layer_norm("sum2", "ln2", "y")]


def layer_constants():
    constants = {"two": f32(2), "one": f32(1), "half": f32(0.5), "eps": f32(1e-5), "root2": f32(np.sqrt(2))}
    sizes = dict.fromkeys(("query", "key", "value", "dense"), (WIDTH, WIDTH))
    for name, shape in (sizes | {"up": (WIDTH, 20), "down": (20, WIDTH)}).items():
        constants[f"{name}_weight"] = RNG.standard_normal(shape).astype(np.float32) / 3
        constants[f"{name}_bias"] = RNG.standard_normal(shape[1]).astype(np.float32)
    for name in ("ln1", "ln2"):
        constants[f"{name}_scale"], constants[f"{name}_bias"] = RNG.standard_normal((2, WIDTH)).astype(np.float32)
    return CONSTANTS | constants


@pytest.mark.parametrize("batch", [BATCH, "batch"])
def test_transformer_layer(batch):
    values = [("x", FLOAT, [batch, LENGTH, WIDTH]), ("mask", FLOAT, [batch, 1, LENGTH, LENGTH])]
    model = build(transformer_layer(), values, [("y", FLOAT, [batch, LENGTH, WIDTH])], layer_constants())
    fused = [name for name in op_types(model) if name not in ("MatMul", "Add")]
    assert fused == ["BiasGelu", "MultiHeadAttention", "SkipLayerNormalization", "SkipLayerNormalization"]
    assert op_types(model).count("MatMul") == 6
    assert "Add" not in op_types(model)
    assert_same_results(model)


@pytest.mark.parametrize(
    ("bias_shape", "is_inner"),
    [([1, 1, 4, 6], 0), ([1, 1, 1, 6], 0), ([1, 3, 4, 6], 0), ([2, 1, 1, 6], 1), ([2, 3, 1, 6], 1)],
)
@pytest.mark.parametrize("order", [["x", "b"], ["b", "x"]])
def test_bias_softmax(bias_shape, is_inner, order):
    nodes = [node("Add", order, ["s"]), node("Softmax", ["s"], ["y"], axis=-1)]
    model = build(nodes, [("x", FLOAT, [2, 3, 4, 6]), ("b", FLOAT, bias_shape)], [("y", FLOAT, None)])
    assert op_types(model) == ["BiasSoftmax"]
    assert optimized(model).nodes[0].attributes["is_inner_broadcast"] == is_inner
    assert_same_results(model)


@pytest.mark.parametrize(
    ("bias_shape", "axis"), [([2, 3, 4, 6], -1), ([1, 3, 1, 6], -1), ([2, 3, 4, 1], -1), ([1, 1, 4, 6], 1), ([6], -1)]
)
def test_other_sums_before_softmax_are_left(bias_shape, axis):
    nodes = [node("Add", ["x", "b"], ["s"]), node("Softmax", ["s"], ["y"], axis=axis)]
    model = build(nodes, [("x", FLOAT, [2, 3, 4, 6]), ("b", FLOAT, bias_shape)], [("y", FLOAT, None)])
    assert op_types(model) == ["Add", "Softmax"]
