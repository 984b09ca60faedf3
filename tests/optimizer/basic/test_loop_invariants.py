"""Values that a Loop only hands on are captured: results stay, and the body sees what is constant."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from tests.models_for_tests import model_bytes, value

node = helper.make_node
INT64, BOOL = TensorProto.INT64, TensorProto.BOOL


def _model(*, identity=True, reads_result=True, fetches_result=False, w_in="w_in", transposed=False):
    """State h, and a weight w that goes through unchanged, as loops of TensorFlow have it, or transposed there and back."""
    handed_on = [node("Identity", [w_in], ["w_mid"]), node("Identity", ["w_mid"], ["w_out"])] if identity else []
    if transposed:
        handed_on = [node("Unsqueeze", [w_in, "first"], ["w_mid"]), node("Squeeze", ["w_mid", "first"], ["w_out"])]
    body = helper.make_graph(
        [
            node("MatMul", ["h_in", w_in], ["product"]),
            node("Tanh", ["product"], ["h_out"]),
            node("Identity", ["going"], ["go_on"]),
            *handed_on,
        ],
        "body",
        [value("i", [], INT64), value("going", [], BOOL), value(w_in, [3, 3]), value("h_in", [1, 3])],
        [value("go_on", [], BOOL), value("w_out" if identity else w_in, [3, 3]), value("h_out", [1, 3])],
    )
    last = ["h_last", "w_last" if reads_result else "weight"]
    nodes = [
        node("Loop", ["trips", "", "weight", "x"], ["w_last" if reads_result or fetches_result else "", "h_last"], body=body),
        node("MatMul", last, ["y"]),
    ]
    outputs = [value("y", [1, 3]), *([value("w_last", [3, 3])] if fetches_result else [])]
    weight = np.random.default_rng(0).standard_normal((3, 3), dtype=np.float32)
    constants = {"weight": weight, "first": np.array([0], np.int64)}
    return model_bytes(nodes, [value("trips", [], INT64), value("x", [1, 3])], outputs, constants)


@pytest.mark.parametrize("trips", [0, 1, 5])
@pytest.mark.parametrize(
    "options",
    [{}, {"identity": False}, {"reads_result": False}, {"fetches_result": True}, {"w_in": "weight"}, {"transposed": True}],
    ids=str,
)
def test_results_stay(options, trips):
    model = _model(**options)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    reference = onnxruntime.InferenceSession(_model(), providers=["CPUExecutionProvider"])  # Omitted outputs end its process.
    feeds = {"trips": np.array(trips), "x": np.ones((1, 3), np.float32)}
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, feeds)[0], reference.run(None, feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{"w_in": "w_in"}, {"w_in": "weight"}, {"transposed": True}], ids=str)
def test_the_weight_is_a_constant_of_the_body(options):
    session = ort.InferenceSession(_model(**options), providers=["CPUExecutionProvider"])
    (loop,) = [node for node in session._state.model.graph.nodes if node.op_type == "Loop"]
    body = loop.attributes["body"]
    assert len(loop.inputs) == 3
    assert len(loop.outputs) == 1
    assert [argument.name for argument in body.inputs] == ["i", "going", "h_in"]
    assert [node.op_type for node in body.nodes if node.op_type == "MatMul"]


def test_an_output_of_the_model_keeps_its_value_carried():
    session = ort.InferenceSession(_model(fetches_result=True), providers=["CPUExecutionProvider"])
    (loop,) = [node for node in session._state.model.graph.nodes if node.op_type == "Loop"]
    assert len(loop.inputs) == 4


def test_a_value_that_changes_stays_carried():
    body = helper.make_graph(
        [node("Identity", ["b_in"], ["a_out"]), node("Identity", ["a_in"], ["b_out"]), node("Identity", ["going"], ["go_on"])],
        "body",
        [value("i", [], INT64), value("going", [], BOOL), value("a_in", [2]), value("b_in", [2])],
        [value("go_on", [], BOOL), value("a_out", [2]), value("b_out", [2])],
    )
    nodes = [node("Loop", ["trips", "", "a", "b"], ["c", "d"], body=body), node("Sub", ["c", "d"], ["y"])]
    model = model_bytes(nodes, [value("trips", [], INT64), value("a", [2]), value("b", [2])], [value("y", [2])])
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    a, b = np.array([1, 2], np.float32), np.array([7, 9], np.float32)
    for trips in (0, 1, 2, 3):
        (found,) = session.run(None, {"trips": np.array(trips), "a": a, "b": b})
        np.testing.assert_array_equal(found, (a - b) * (-1) ** trips)


def _projecting_model():
    """An attention's keys are computed anew in each iteration, of what the loop does not change."""
    rng = np.random.default_rng(1)
    projection = helper.make_tensor("projection", TensorProto.FLOAT, [3, 3], rng.standard_normal(9).astype(np.float32))
    body = helper.make_graph(
        [
            node("MatMul", ["keys", "projection"], ["projected"]),
            node("Tanh", ["projected"], ["bounded"]),
            node("Add", ["h_in", "bounded"], ["h_sum"]),
            node("ReduceMean", ["h_sum"], ["h_out"], axes=[0], keepdims=1),
            node("Mul", ["four", "i"], ["quotient"]),
            node("Cast", ["quotient"], ["share"], to=TensorProto.FLOAT),
            node("Mul", ["share", "keys"], ["row"]),
            node("Identity", ["going"], ["go_on"]),
        ],
        "body",
        [value("i", [], INT64), value("going", [], BOOL), value("h_in", [1, 3])],
        [value("go_on", [], BOOL), value("h_out", [1, 3]), value("row", [2, 3])],
        [projection],
    )
    nodes = [
        node("Relu", ["x"], ["keys"]),
        node("Add", ["trips", "one"], ["bounded"]),
        node("Loop", ["trips", "", "start"], ["h", "rows"], body=body),
        node("Cast", ["bounded"], ["more"], to=TensorProto.FLOAT),
        node("Add", ["h", "more"], ["y"]),
    ]
    inputs = [value("trips", [], INT64), value("x", [2, 3]), value("start", [1, 3])]
    constants = {"one": np.int64(1), "four": np.int64(4)}
    return model_bytes(nodes, inputs, [value("y", [1, 3]), value("rows", ["n", 2, 3])], constants)


def test_nodes_that_give_the_same_in_each_iteration_are_moved_out():
    model = _projecting_model()
    plain = ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    reference = ort.InferenceSession(model, plain, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(2)
    for trips in (0, 1, 3):
        feeds = {
            "trips": np.array(trips),
            "x": rng.standard_normal((2, 3), dtype=np.float32),
            "start": np.ones((1, 3), np.float32),
        }
        if trips:
            feeds["trips"] = np.array(trips)
        expected = reference.run(None, feeds)
        for _ in range(3):
            for ours, theirs in zip(session.run(None, feeds), expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    (loop,) = [node for node in session._state.model.graph.nodes if node.op_type == "Loop"]
    inner = [node.op_type for node in loop.attributes["body"].nodes]
    assert "MatMul" not in inner
    assert "Tanh" not in inner
    assert inner.count("Mul") == 2
