"""Recurrent layers on a device against onnxruntime, with programs that replay their launches."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.device import CapturedCall

pytestmark = pytest.mark.opencl

TIME, BATCH, SIZE, HIDDEN = 12, 2, 5, 7


def _model(op_type, gates, lengths):
    rng = np.random.default_rng(0)
    shapes = {"w": (2, gates * HIDDEN, SIZE), "r": (2, gates * HIDDEN, HIDDEN), "b": (2, 2 * gates * HIDDEN)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) / 3 for name, shape in shapes.items()}
    names = ["x", "w", "r", "b"]
    if lengths is not None:
        weights["lengths"] = np.array(lengths, np.int32)
        names.append("lengths")
    node = helper.make_node(op_type, names, ["y", "h"], hidden_size=HIDDEN, direction="bidirectional")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "h")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [TIME, BATCH, SIZE])
    graph = helper.make_graph([node], "g", [x], values, [onnx.numpy_helper.from_array(a, n) for n, a in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("lengths", [None, [TIME, 3]])
@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers(op_type, gates, lengths, monkeypatch):
    calls, bind = [], CapturedCall.__init__

    def counted(self, *arguments):
        bind(self, *arguments)
        calls.append(self.count)

    monkeypatch.setattr(CapturedCall, "__init__", counted)
    model = _model(op_type, gates, lengths)
    session = ort.InferenceSession(model, providers=["OpenCLExecutionProvider", "CPUExecutionProvider"])
    assert {each.provider for each in session.placements()} == {"OpenCLExecutionProvider"}
    oracle = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for seed in range(4):
        feeds = {"x": np.random.default_rng(seed).standard_normal((TIME, BATCH, SIZE)).astype(np.float32)}
        for own, wanted in zip(session.run(None, feeds), oracle.run(None, feeds), strict=True):
            np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=2e-6)
    # one or two products and a few element-wise kernels for each step and direction
    assert len(calls) == 1
    assert calls[0] <= 2 * TIME * 7
