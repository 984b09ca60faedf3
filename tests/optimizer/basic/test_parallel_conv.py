"""Convolutions and normalizations of one input that are added up: one convolution, of the same results."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.optimizer.basic.basic_model import assert_equal_at_levels, basic_ops
from tests.optimizer.extended.fused_graph import FLOAT, build, node

RNG = np.random.default_rng(12)
WIDE = {"pads": [1, 1, 1, 1]}


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def norm(name, channels=4, dtype=np.float32):
    made = {f"{name}{part}": normal(channels, dtype=dtype) for part in "ghm"}
    return made | {f"{name}v": RNG.uniform(0.5, 2, channels).astype(dtype)}


def norm_node(name, source, output):
    return node("BatchNormalization", [source, *(f"{name}{part}" for part in "ghmv")], [output], epsilon=1e-3)


def model_of(nodes, constants, shape=(2, 4, 7, 6), opset=14, kind=FLOAT, outputs=("y",)):
    return build(nodes, [("x", kind, list(shape))], [(name, kind, None) for name in outputs], constants, opset)


def sum_model(first, second, *, taps=((3, 3), (1, 1)), groups=(1, 1), bias=(True, False), channels=4, **options):
    constants, nodes = {}, []
    for place, attributes in enumerate((first, second)):
        inputs = ["x", f"w{place}", *([f"b{place}"] if bias[place] else [])]
        constants[f"w{place}"] = normal(channels, 4 // groups[place], *taps[place])
        if bias[place]:
            constants[f"b{place}"] = normal(channels)
        nodes.append(node("Conv", inputs, [f"c{place}"], group=groups[place], **attributes))
    return model_of([*nodes, node("Add", ["c0", "c1"], ["y"])], constants, **options)


JOINED = {
    "one tap": sum_model(WIDE, {}),
    "one tap first": sum_model({}, WIDE, taps=((1, 1), (3, 3))),
    "equal windows": sum_model(WIDE, WIDE, taps=((3, 3), (3, 3)), bias=(True, True)),
    "no bias": sum_model(WIDE, {}, bias=(False, False)),
    "in steps": sum_model(WIDE | {"strides": [2, 2]}, {"strides": [2, 2]}, shape=(1, 4, 9, 8)),
    "groups": sum_model(WIDE, {}, groups=(4, 4)),
    "valid": sum_model({"auto_pad": "VALID"}, {}, taps=((1, 1), (1, 1))),
    "flat among square": sum_model(WIDE, {"pads": [0, 1, 0, 1]}, taps=((3, 3), (1, 3))),
    "dilated": sum_model({"pads": [2, 2, 2, 2], "dilations": [2, 2]}, {}),
    "uneven pads": sum_model({"pads": [2, 0, 0, 2]}, {}),
    "one axis": sum_model({"pads": [2, 2]}, {"pads": [1, 1]}, taps=((5,), (3,)), shape=(1, 4, 9)),
    "any size": sum_model(WIDE, {}, shape=("n", 4, "h", "w")),
}


@pytest.mark.parametrize("case", JOINED)
def test_windows_within_windows_are_one(case):
    assert basic_ops(JOINED[case]) == ["Conv"]
    assert_equal_at_levels(JOINED[case], rtol=1e-4, atol=1e-4)


SPLIT = {
    "crossing windows": sum_model({"pads": [1, 0, 1, 0]}, {"pads": [0, 1, 0, 1]}, taps=((3, 1), (1, 3))),
    "other steps": sum_model(WIDE | {"strides": [2, 2]}, {"strides": [1, 1]}, shape=(1, 4, 1, 1)),
    "other groups": sum_model(WIDE, {}, groups=(1, 2)),
    "results that broadcast": sum_model({}, {"pads": [0, 0, 0, 0]}, taps=((3, 3), (1, 1)), shape=(1, 4, 3, 3)),
    "other dilations": sum_model(
        {"pads": [2, 2, 2, 2]}, {"pads": [2, 2, 2, 2], "dilations": [2, 2]}, taps=((5, 5), (3, 3)), shape=(1, 4, 9, 9)
    ),
    "automatic pads": sum_model({"auto_pad": "SAME_UPPER"}, {}),
}


@pytest.mark.parametrize("case", SPLIT)
def test_others_stay(case):
    assert basic_ops(SPLIT[case]) == ["Conv", "Conv", "Add"]
    assert_equal_at_levels(SPLIT[case], rtol=1e-4, atol=1e-4)


def test_results_that_others_read_stay():
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Conv", ["x", "v"], ["b"]), node("Add", ["a", "b"], ["y"])]
    constants = {"w": normal(4, 4, 1, 1), "v": normal(4, 4, 1, 1)}
    model = model_of(nodes, constants, outputs=("y", "a"))
    assert basic_ops(model).count("Conv") == 2
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


def test_a_result_added_to_itself_stays():
    model = model_of([node("Conv", ["x", "w"], ["a"]), node("Add", ["a", "a"], ["y"])], {"w": normal(4, 4, 1, 1)})
    assert basic_ops(model) == ["Conv", "Add"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


def test_weights_that_are_inputs_stay():
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Conv", ["x", "v"], ["b"]), node("Add", ["a", "b"], ["y"])]
    inputs = [("x", FLOAT, [1, 4, 5, 5]), ("v", FLOAT, [4, 4, 1, 1])]
    model = build(nodes, inputs, [("y", FLOAT, None)], {"w": normal(4, 4, 1, 1)}, 14)
    assert basic_ops(model) == ["Conv", "Conv", "Add"]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("norm_first", [False, True])
def test_branches_of_training_are_one(groups, norm_first):
    """As of RepVGG: a convolution of 3 by 3 taps, one of one tap and a normalization of the input itself."""
    constants = {"w": normal(4, 4 // groups, 3, 3), "u": normal(4, 4 // groups, 1, 1)} | norm("a") | norm("b") | norm("c")
    branches = [
        *(node("Conv", ["x", "w"], ["cw"], group=groups, **WIDE), norm_node("a", "cw", "nw")),
        *(node("Conv", ["x", "u"], ["cu"], group=groups), norm_node("b", "cu", "nu")),
        norm_node("c", "x", "nx"),
    ]
    sums = [("nx", "nu"), ("s", "nw")] if norm_first else [("nw", "nu"), ("s", "nx")]
    adding = [node("Add", list(sums[0]), ["s"]), node("Add", list(sums[1]), ["t"]), node("Relu", ["t"], ["y"])]
    model = model_of([*branches, *adding], constants)
    assert basic_ops(model) == ["Conv", "Relu"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "attributes",
    [{"pads": [0, 1, 2, 1]}, {"pads": [2, 2, 2, 2], "dilations": [2, 2]}],
    ids=["tap at the border", "dilated"],
)
def test_the_normalized_tap_is_where_the_result_is(attributes):
    nodes = [node("Conv", ["x", "w", "b"], ["c"], **attributes), norm_node("a", "x", "n"), node("Add", ["c", "n"], ["y"])]
    model = model_of(nodes, {"w": normal(4, 4, 3, 3), "b": normal(4)} | norm("a"))
    assert basic_ops(model) == ["Conv"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", ["steps", "shrinks", "other input"])
def test_normalizations_elsewhere_stay(case):
    attributes = {"steps": WIDE | {"strides": [2, 2]}, "shrinks": {}, "other input": WIDE}[case]
    shape = (1, 4, 1, 1) if case == "steps" else (1, 4, 3, 3)
    before = [node("Abs", ["x"], ["z"])] if case == "other input" else []
    source = "z" if before else "x"
    nodes = [*before, node("Conv", ["x", "w"], ["c"], **attributes), norm_node("a", source, "n")]
    model = model_of([*nodes, node("Add", ["c", "n"], ["y"])], {"w": normal(4, 4, 3, 3)} | norm("a"), shape=shape)
    assert "Conv" in basic_ops(model)
    assert "Add" in basic_ops(model)
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


def test_double_precision_keeps_it():
    constants = {"w": normal(4, 4, 3, 3, dtype=np.float64), "u": normal(4, 4, 1, 1, dtype=np.float64)}
    constants |= norm("a", dtype=np.float64)
    nodes = [node("Conv", ["x", "w"], ["c"], **WIDE), node("Conv", ["x", "u"], ["d"]), norm_node("a", "x", "n")]
    sums = [node("Add", ["c", "d"], ["s"]), node("Add", ["s", "n"], ["y"])]
    model = model_of([*nodes, *sums], constants, kind=TensorProto.DOUBLE)
    assert basic_ops(model) == ["Conv"]
    assert_equal_at_levels(model, rtol=1e-12, atol=1e-12, ort=False)
