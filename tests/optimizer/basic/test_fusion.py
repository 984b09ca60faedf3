"""Arithmetic around convolutions and matrix products folded into them."""

from __future__ import annotations

import numpy as np
import pytest

from ort_sdk.graph.derived_tensor import DerivedTensor
from tests.optimizer.basic.basic_model import assert_equal_at_levels, basic_graph, basic_ops
from tests.optimizer.extended.fused_graph import FLOAT, build, f32, node, saved_graph

RNG = np.random.default_rng(6)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def conv_model(*nodes, constants, channels=4, bias=True, outputs=("y",), opset=17, groups=1):
    weight = {"w": normal(channels, 4 // groups, 3, 3), **({"b": normal(channels)} if bias else {})}
    conv = node("Conv", ["x", *weight], ["c"], pads=[1, 1, 1, 1], group=groups)
    return build(
        [conv, *nodes],
        [("x", FLOAT, [2, 4, 5, 5])],
        [(name, FLOAT, [2, channels, 5, 5]) for name in outputs],
        {**weight, **constants},
        opset,
    )


def norm_constants(channels):
    return {"g": normal(channels), "h": normal(channels), "m": normal(channels), "v": np.abs(normal(channels)) + 0.5}


BN = node("BatchNormalization", ["c", "g", "h", "m", "v"], ["y"], epsilon=1e-3)
CHAIN = {
    "normalization": ([BN], norm_constants(4)),
    "product per channel": ([node("Mul", ["c", "k"], ["y"])], {"k": normal(4, 1, 1)}),
    "scalar first": ([node("Mul", ["k", "c"], ["y"])], {"k": f32(3)}),
    "sum per channel": ([node("Add", ["c", "k"], ["y"])], {"k": normal(1, 4, 1, 1)}),
    "sum with a scalar": ([node("Add", ["c", "k"], ["y"])], {"k": f32([2])}),
    "both": ([node("Mul", ["c", "k"], ["d"]), node("Add", ["d", "l"], ["y"])], {"k": normal(4, 1, 1), "l": normal(4, 1, 1)}),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", CHAIN)
def test_arithmetic_per_channel_goes_into_the_convolution(case, bias):
    nodes, constants = CHAIN[case]
    model = conv_model(*nodes, constants=constants, bias=bias)
    assert basic_ops(model) == ["Conv"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


def test_grouped_convolutions_are_scaled_by_output_channel():
    model = conv_model(BN, constants=norm_constants(8), channels=8, groups=2)
    assert basic_ops(model) == ["Conv"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


def test_big_weights_are_scaled_when_they_are_read():
    weight = normal(64, 64, 3, 3)
    model = build(
        [node("Conv", ["x", "w"], ["c"]), BN],
        [("x", FLOAT, [1, 64, 5, 5])],
        [("y", FLOAT, [1, 64, 3, 3])],
        {"w": weight, **norm_constants(64)},
    )
    graph = basic_graph(model)
    assert [found.op_type for found in graph.nodes] == ["Conv"]
    scaled = graph.initializers[graph.nodes[0].inputs[1]]
    assert isinstance(scaled, DerivedTensor)
    assert scaled.shape == weight.shape
    assert_equal_at_levels(model, rtol=1e-3, atol=1e-3)


OTHERS = {
    "per position": ([node("Mul", ["c", "k"], ["y"])], {"k": normal(5, 5)}, ["Conv", "Mul"]),
    "last axis": ([node("Add", ["c", "k"], ["y"])], {"k": normal(5)}, ["Conv", "Add"]),
    "training": (
        [node("BatchNormalization", ["c", "g", "h", "m", "v"], ["y", "nm", "nv"], training_mode=1)],
        norm_constants(4),
        ["Conv", "BatchNormalization"],
    ),
    "itself": ([node("Add", ["c", "c"], ["y"])], {}, ["Conv", "Add"]),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_arithmetic_stays(case):
    nodes, constants, left = OTHERS[case]
    model = conv_model(*nodes, constants=constants)
    assert basic_ops(model) == left
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


def test_a_convolution_read_elsewhere_stays():
    read = conv_model(BN, node("Exp", ["c"], ["z"]), constants=norm_constants(4), outputs=("y", "z"))
    given = conv_model(BN, constants=norm_constants(4), outputs=("y", "c"))
    assert sorted(basic_ops(read)) == ["Add", "Conv", "Exp", "Mul"]
    assert basic_ops(given) == ["Conv", "Mul", "Add"]
    for model in (read, given):
        assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


def test_parameters_a_feed_may_replace_stay(tmp_path):
    constants = norm_constants(2)
    model = build(
        [node("Conv", ["x", "w"], ["c"]), BN],
        [("x", FLOAT, [1, 2, 3, 3]), ("g", FLOAT, [2])],
        [("y", FLOAT, [1, 2, 3, 3])],
        {"w": normal(2, 2, 1, 1), **constants},
    )
    assert [node.op_type for node in saved_graph(model, 1, tmp_path).node] == ["Conv", "BatchNormalization"]


@pytest.mark.parametrize("own", [{}, {"pads": [1, 0, 0, 1]}, {"auto_pad": "VALID"}])
def test_zero_padding_goes_into_the_convolution(own):
    model = build(
        [node("Pad", ["x", "p"], ["a"]), node("Conv", ["a", "w"], ["y"], **own)],
        [("x", FLOAT, [1, 2, 4, 4])],
        [("y", FLOAT, None)],
        {"p": np.array([0, 0, 1, 2, 0, 0, 0, 1]), "w": normal(3, 2, 2, 2)},
    )
    assert basic_ops(model) == ["Conv"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("pads", "constants", "attributes"),
    [
        ([0, 1, 0, 0, 0, 1, 0, 0], {}, {}),
        ([0, 0, -1, 0, 0, 0, 0, 0], {}, {}),
        ([0, 0, 1, 1, 0, 0, 1, 1], {"v": f32(2)}, {}),
        ([0, 0, 1, 1, 0, 0, 1, 1], {}, {"mode": "reflect"}),
    ],
)
def test_other_padding_stays(pads, constants, attributes):
    channels = 2 + pads[1] + pads[5]
    model = build(
        [node("Pad", ["x", "p", *constants], ["a"], **attributes), node("Conv", ["a", "w"], ["y"])],
        [("x", FLOAT, [1, 2, 4, 4])],
        [("y", FLOAT, None)],
        {"p": np.array(pads), "w": normal(3, channels, 2, 2), **constants},
    )
    assert basic_ops(model) == ["Pad", "Conv"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-5)


POOL = {"kernel_shape": [3, 2], "strides": [2, 1]}


def pool_model(added, **attributes):
    nodes = [node("Pad", ["x", "p"], ["a"]), node("AveragePool", ["a"], ["y"], **POOL | attributes)]
    return build(
        nodes, [("x", FLOAT, [1, 20, 6, 7])], [("y", FLOAT, None)], {"p": np.array([0, 0, *added[:2], 0, 0, *added[2:]])}
    )


@pytest.mark.parametrize("own", [{}, {"pads": [1, 0, 0, 1], "count_include_pad": 1}, {"auto_pad": "VALID"}])
def test_zero_padding_goes_into_the_average(own):
    model = pool_model([1, 1, 2, 0], **own)
    assert basic_ops(model) == ["AveragePool"]
    assert_equal_at_levels(model)


@pytest.mark.parametrize(
    ("pads", "own"),
    [
        ([1, 1, 1, 1], {"pads": [1, 0, 0, 1]}),
        ([1, 1, 1, 1], {"ceil_mode": 1}),
        ([1, 2, 1, 0], {}),
        ([1, 1, 1, 1], {"auto_pad": "SAME_UPPER"}),
    ],
)
def test_padding_that_an_average_cannot_have_stays(pads, own):
    model = pool_model(pads, **own)
    assert basic_ops(model) == ["Pad", "AveragePool"]
    assert_equal_at_levels(model)


@pytest.mark.parametrize("mode", ["constant", "edge"])
def test_padding_with_nothing_goes(mode):
    nodes = [node("Relu", ["x"], ["r"]), node("Pad", ["r", "p", "v"], ["a"], mode=mode), node("MaxPool", ["a"], ["y"], **POOL)]
    constants = {"p": np.zeros(8, np.int64), "v": f32(3)}
    model = build(nodes, [("x", FLOAT, [1, 2, 6, 7])], [("y", FLOAT, None)], constants)
    assert basic_ops(model) == ["Relu", "MaxPool"]
    assert_equal_at_levels(model)


def product(*nodes, constants, rows="m", out=None):
    return build(list(nodes), [("x", FLOAT, [rows, 3])], [("y", FLOAT, out or [rows, 4])], constants)


MATMUL = node("MatMul", ["x", "w"], ["p"])


@pytest.mark.parametrize("bias", [normal(4), normal(1, 4), normal(1, 1), f32(2)])
def test_a_product_and_a_sum_become_gemm(bias):
    model = product(MATMUL, node("Add", ["k", "p"], ["y"]), constants={"w": normal(3, 4), "k": bias})
    assert basic_ops(model) == ["Gemm"]
    assert_equal_at_levels(model)


@pytest.mark.parametrize("bias", [normal(2, 1, 4), normal(5, 4)])
def test_a_sum_that_widens_the_product_stays(bias):
    out = [2, "m", 4] if bias.ndim == 3 else ["m", 4]
    model = product(MATMUL, node("Add", ["p", "k"], ["y"]), constants={"w": normal(3, 4), "k": bias}, out=out)
    assert basic_ops(model) == ["MatMul", "Add"]


def test_products_of_other_ranks_stay():
    model = build(
        [MATMUL, node("Add", ["p", "k"], ["y"])],
        [("x", FLOAT, [2, 5, 3])],
        [("y", FLOAT, [2, 5, 4])],
        {"w": normal(3, 4), "k": normal(4)},
    )
    assert basic_ops(model) == ["MatMul", "Add"]


def test_gemm_takes_sums_and_transposed_operands():
    model = build(
        [
            node("Transpose", ["x"], ["a"]),
            node("Gemm", ["a", "w"], ["p"], alpha=2.0, transA=0, transB=1, beta=3.0),
            node("Add", ["p", "k"], ["y"]),
        ],
        [("x", FLOAT, [3, 2])],
        [("y", FLOAT, [2, 4])],
        {"w": normal(4, 3), "k": normal(4)},
    )
    (gemm,) = basic_graph(model).nodes
    assert (gemm.op_type, gemm.attributes["transA"]) == ("Gemm", 1)
    assert_equal_at_levels(model)
