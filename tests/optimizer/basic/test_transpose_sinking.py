"""Transposes of images to channels last: they move until they meet their inverses, and results stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.optimizer.basic.basic_model import assert_equal_at_levels, basic_ops
from tests.optimizer.extended.fused_graph import FLOAT, build, node

RNG = np.random.default_rng(3)
LAST, FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def model_of(*nodes, constants=None, opset=17, rank=4):
    """Nodes from ``t``, a convolution's image with channels last, to ``u``, behind which is a transpose and a convolution."""
    chain = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        node("Transpose", ["c"], ["t"], perm=LAST),
        *nodes,
    ]
    if rank == 4:
        chain += [node("Transpose", ["u"], ["v"], perm=FIRST), node("Relu", ["v"], ["y"])]
    else:
        chain.append(node("Relu", ["u"], ["y"]))
    inits = {"w": normal(5, 3, 3, 3), **(constants or {})}
    return build(chain, [("x", FLOAT, [2, 3, 6, 7])], [("y", FLOAT, [None] * rank)], inits, opset)


MOVED = {
    "unary": ([node("Tanh", ["t"], ["u"])], {}),
    "bounds": ([node("Clip", ["t", "low", "high"], ["u"])], {"low": np.float32(-0.5), "high": np.float32(0.5)}),
    "a number": ([node("Div", ["t", "k"], ["u"])], {"k": normal(1)}),
    "a number per channel": ([node("Sub", ["k", "t"], ["u"])], {"k": normal(5)}),
    "a number per pixel": ([node("Mul", ["t", "k"], ["u"])], {"k": normal(6, 7, 1)}),
    "slopes": ([node("PRelu", ["t", "k"], ["u"])], {"k": normal(1, 1, 5)}),
    "padding": ([node("Pad", ["t", "k"], ["u"], mode="edge")], {"k": np.array([0, 1, 2, 0, 0, 3, 4, 0])}),
    "a mean": ([node("ReduceMean", ["t"], ["u"], axes=[1, -2])], {}),
    "two in a row": ([node("Sigmoid", ["t"], ["s"]), node("Exp", ["s"], ["u"])], {}),
    "swish": ([node("Sigmoid", ["t"], ["s"]), node("Mul", ["s", "t"], ["u"])], {}),
    "a gate": ([node("ReduceMean", ["t"], ["m"], axes=[1, 2]), node("Tanh", ["m"], ["g"]), node("Mul", ["t", "g"], ["u"])], {}),
    "channels joined": ([node("Tanh", ["t"], ["a"]), node("Exp", ["t"], ["b"]), node("Concat", ["a", "b"], ["u"], axis=-1)], {}),
}


@pytest.mark.parametrize("case", MOVED)
def test_transposes_meet(case):
    nodes, constants = MOVED[case]
    model = model_of(*nodes, constants=constants)
    assert "Transpose" not in basic_ops(model)
    assert_equal_at_levels(model)


def test_a_constant_without_elements_is_transposed():
    model = build(
        [
            *(node("Conv", ["x", "w"], ["c"]), node("Transpose", ["c"], ["t"], perm=LAST), node("Add", ["t", "k"], ["u"])),
            node("Relu", ["u"], ["y"]),
        ],
        [("x", FLOAT, [2, 3, 6, 7])],
        [("y", FLOAT, [2, 6, 7, 0])],
        {"w": normal(1, 3, 1, 1), "k": normal(0)},
        17,
    )
    assert_equal_at_levels(model)


@pytest.mark.parametrize("squeezes", [False, True])
def test_axes_that_are_gone_need_no_transpose(squeezes):
    mean = node("ReduceMean", ["t"], ["m" if squeezes else "u"], axes=[1, 2], keepdims=int(squeezes))
    nodes = [mean, node("Squeeze", ["m", "axes"], ["u"])] if squeezes else [mean]
    model = model_of(*nodes, constants={"axes": np.array([1, 2])} if squeezes else {}, rank=2)
    assert "Transpose" not in basic_ops(model)
    assert_equal_at_levels(model)


def test_axes_as_an_input():
    model = model_of(node("ReduceMax", ["t", "k"], ["u"], keepdims=1), constants={"k": np.array([3])}, opset=18)
    assert "Transpose" not in basic_ops(model)
    assert_equal_at_levels(model)


STAYING = {
    "an order that is left": ([node("ReduceMean", ["t"], ["u"], axes=[1], keepdims=0)], {}, 3),
    "a softmax": ([node("Softmax", ["t"], ["u"], axis=-1), node("Transpose", ["u"], ["unused"])], {}, 4),
    "another image": (
        [node("Reshape", ["x", "s"], ["r"]), node("ReduceMax", ["r"], ["z"], axes=[3]), node("Add", ["t", "z"], ["u"])],
        {"s": np.array([2, 6, 7, 3])},
        4,
    ),
}


@pytest.mark.parametrize("case", STAYING)
def test_what_stays(case):
    nodes, constants, rank = STAYING[case]
    model = model_of(*nodes, constants=constants, rank=rank)
    assert "Transpose" in basic_ops(model)
    assert_equal_at_levels(model)


def test_outputs_keep_their_names_and_order():
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("Transpose", ["c"], ["t"], perm=LAST),
        node("Relu", ["t"], ["y"]),
        node("Neg", ["t"], ["z"]),
    ]
    outputs = [(name, FLOAT, [None] * 4) for name in ("t", "y", "z")]
    model = build(nodes, [("x", FLOAT, [1, 3, 6, 7])], outputs, {"w": normal(5, 3, 3, 3)})
    assert_equal_at_levels(model)


def test_heads_of_attention_stay_as_patterns_know_them():
    nodes = [
        node("Reshape", ["x", "s"], ["h"]),
        node("Transpose", ["h"], ["t"], perm=LAST),
        node("Mul", ["t", "k"], ["y"]),
    ]
    constants = {"s": np.array([2, 7, 6, 3]), "k": np.float32(0.5)}
    model = build(nodes, [("x", FLOAT, [2, 3, 6, 7])], [("y", FLOAT, [None] * 4)], constants)
    assert basic_ops(model) == ["Reshape", "Transpose", "Mul"]
    assert_equal_at_levels(model)
