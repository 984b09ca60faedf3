"""Where the time of models with bodies goes: each nanosecond of a run step by step is in one row."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

SIZE = 120
ROUNDS = 10
MATRIX = [SIZE, SIZE]


def value(name, shape=None, element_type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element_type, shape)


def branches(state):
    """An If with bodies of two nodes, which read an outer value."""
    then = [helper.make_node("MatMul", [state, "w"], ["t1"]), helper.make_node("Tanh", ["t1"], ["t2"])]
    other = [helper.make_node("Sin", [state], ["e1"]), helper.make_node("Cos", ["e1"], ["e2"])]
    return {
        "then_branch": helper.make_graph(then, "then", [], [value("t2")]),
        "else_branch": helper.make_graph(other, "other", [], [value("e2")]),
    }


def loop():
    """A loop with an If in its body: nodes, and how often each runs."""
    nodes = [
        helper.make_node("Add", ["h", "b"], ["h0"]),
        helper.make_node("Less", ["i", "half"], ["is_early"]),
        helper.make_node("If", ["is_early"], ["h1"], **branches("h0")),
        helper.make_node("Identity", ["go"], ["go_on"]),
    ]
    inputs = [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("h", MATRIX)]
    body = helper.make_graph(nodes, "body", inputs, [value("go_on", [], TensorProto.BOOL), value("h1", MATRIX)])
    calls = {"Add": ROUNDS, "Less": ROUNDS, "If": ROUNDS, "Identity": ROUNDS}
    calls |= dict.fromkeys(("MatMul", "Tanh", "Sin", "Cos"), ROUNDS / 2)
    return helper.make_node("Loop", ["count", "", "x1"], ["y0"], body=body), calls | {"Loop": 1}


def branch():
    return helper.make_node("If", ["yes"], ["y0"], **branches("x1")), {"If": 1, "MatMul": 1, "Tanh": 1}


def scan():
    nodes = [helper.make_node("Add", ["s", "row"], ["s1"]), helper.make_node("Sin", ["s1"], ["out"])]
    outputs = [value("s1", [SIZE]), value("out", [SIZE])]
    body = helper.make_graph(nodes, "body", [value("s", [SIZE]), value("row", [SIZE])], outputs)
    node = helper.make_node("Scan", ["b", "x1"], ["", "y0"], body=body, num_scan_inputs=1)
    return node, {"Scan": 1, "Add": SIZE, "Sin": SIZE}


@pytest.fixture(params=[loop, branch, scan])
def model(request, tmp_path):
    """A file, and how often each operator of the model runs."""
    node, calls = request.param()
    constants = {
        "w": np.eye(SIZE, dtype=np.float32),
        "b": np.ones(SIZE, np.float32),
        "count": np.int64(ROUNDS),
        "half": np.int64(ROUNDS // 2),
        "yes": np.bool_(True),
    }
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    nodes = [helper.make_node("Exp", ["x"], ["x1"]), node, helper.make_node("Relu", ["y0"], ["y"])]
    graph = helper.make_graph(nodes, "g", [value("x", MATRIX)], [value("y", MATRIX)], weights)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path, calls | {"Exp": 1, "Relu": 1}


@pytest.mark.parametrize("runs", [1, 3])
def test_each_nanosecond_is_in_one_row(cli, model, runs):
    path, calls = model
    report = json.loads(cli("profile", path, "--runs", runs, "--level", "none", "--step-by-step", "--json").out)
    steps = {row["operator"]: row for row in report["rows"] if row["provider"]}
    assert {name: row["calls"] for name, row in steps.items()} == calls
    assert all(row["ms"] > 0 for row in steps.values())
    assert sum(row["ms"] for row in report["rows"]) == pytest.approx(report["run_ms"], rel=1e-3)
    assert sum(row["percent"] for row in report["rows"]) == pytest.approx(100, rel=1e-3)


def test_the_table_says_whether_bodies_are_included(cli, model):
    path, _ = model
    assert "Scan are without their bodies" in cli("profile", path, "--runs", "1", "--step-by-step").out
    assert "Scan include their bodies" in cli("profile", path, "--runs", "1").out
