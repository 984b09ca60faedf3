"""float16 constants beside values that are kept in float: the first runs, and programs, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk as ort

SHAPE = (1, 4, 6, 20)
RUNS = 4
node = helper.make_node


def halves(*shape):
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float16)


def places(*shape):
    return np.broadcast_to(np.arange(shape[-1]), shape).copy()


CASES = {
    "Pad": ([node("Pad", ["a", "pads", "c"], ["b"])], {"pads": np.array([0, 1, 0, 2, 0, 0, 1, 0]), "c": halves()}),
    "Pad on an axis": (
        [node("Pad", ["a", "pads", "c", "axes"], ["b"])],
        {"pads": np.array([1, 0]), "c": halves(), "axes": np.array([3])},
    ),
    "Concat": ([node("Concat", ["c", "a"], ["b"], axis=3)], {"c": halves(1, 4, 6, 3)}),
    "Where": ([node("Less", ["a", "half"], ["d"]), node("Where", ["d", "c", "a"], ["b"])], {"c": halves(4, 1, 1)}),
    "ScatterND": ([node("ScatterND", ["a", "at", "c"], ["b"])], {"at": np.array([[0, 2], [0, 0]]), "c": halves(2, 6, 20)}),
    "ScatterND into": ([node("ScatterND", ["c", "at", "a"], ["b"])], {"at": np.array([[2]]), "c": halves(3, 4, 6, 20)}),
    "ScatterElements": (
        [node("ScatterElements", ["a", "at", "c"], ["b"], axis=3)],
        {"at": places(1, 4, 6, 5), "c": halves(1, 4, 6, 5)},
    ),
    "a large constant": ([node("Concat", ["a", "c"], ["b"], axis=1)], {"c": halves(1, 600, 6, 20)}),
}


def model_of(nodes, constants):
    before, behind = node("Sigmoid", ["x"], ["a"]), node("Sigmoid", ["b"], ["y"])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name, shape in (("x", SHAPE), ("y", None)))
    held = [numpy_helper.from_array(array, name) for name, array in {"half": np.float16(0.5), **constants}.items()]
    graph = helper.make_graph([before, *nodes, behind], "graph", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("case", CASES)
def test_in_each_run(case):
    model, x = model_of(*CASES[case]), halves(*SHAPE)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    (expected,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for _ in range(RUNS):
        (found,) = session.run(None, {"x": x})
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3)


def test_a_value_of_each_run_fills_a_border():
    model = helper.make_model(
        helper.make_graph(
            [
                node("Sigmoid", ["x"], ["a"]),
                node("Sigmoid", ["v"], ["c"]),
                node("Pad", ["a", "pads", "c"], ["b"]),
                node("Sigmoid", ["b"], ["y"]),
            ],
            "graph",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape) for name, shape in (("x", SHAPE), ("v", []))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)],
            [numpy_helper.from_array(np.array([0, 1, 0, 2, 0, 0, 1, 0]), "pads")],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        ir_version=8,
    ).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    other = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for run in range(RUNS):
        feeds = {"x": halves(*SHAPE), "v": np.array(run, np.float16)}
        np.testing.assert_allclose(session.run(None, feeds)[0], other.run(None, feeds)[0], rtol=0, atol=2e-3)
