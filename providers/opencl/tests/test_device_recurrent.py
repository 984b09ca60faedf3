"""Recurrent layers on a device against onnxruntime, with programs that replay their launches."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import KernelInfo, NodeArg
from ort_sdk.device import CapturedCall
from ort_sdk.device.recurrent.layers import recurrent

from .device_contexts import host, launches_of

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
    # one or two products and a few element-wise kernels for each step and direction, or all in one
    assert len(calls) == 1
    assert calls[0] <= 2 * TIME * 7
    if lengths is None and op_type != "GRU":
        assert calls[0] <= 2 * TIME + 10


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize(("batch", "hidden"), [(1, 16), (5, 37)])
def test_steps_of_one_launch(xp, batch, hidden, op_type, gates, direction, layout, monkeypatch):
    steps, size, count = 6, 4, 2 if direction == "bidirectional" else 1
    rng = np.random.default_rng(batch)
    shapes = {"w": (count, gates * hidden, size), "r": (count, gates * hidden, hidden), "b": (count, 2 * gates * hidden)}
    states = (batch, count, hidden) if layout else (count, batch, hidden)
    shapes |= {"h": states, "c": states} if op_type == "LSTM" else {"h": states}
    x = rng.standard_normal((batch, steps, size) if layout else (steps, batch, size)).astype(np.float32)
    given = {"x": x} | {name: rng.standard_normal(shape).astype(np.float32) / 3 for name, shape in shapes.items()}
    names, outputs = [*list(given)[:4], "", *list(given)[4:]], ["y", "yh", "yc"][: 3 if op_type == "LSTM" else 2]
    attributes = {"hidden_size": hidden, "direction": direction, "layout": layout}
    attributes |= {"linear_before_reset": 1} if op_type == "GRU" else {}
    node = helper.make_node(op_type, names, outputs, **attributes)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in given.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "g", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()
    wanted = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, given)
    arguments = tuple(NodeArg(name, "tensor(float)") if name else None for name in names)
    info = KernelInfo(op_type, 14, inputs=arguments, outputs=tuple(map(NodeArg, outputs)), attributes=attributes)
    compute = recurrent(info, xp, None)
    arrays = [None if not name else xp.from_host(given[name]) for name in names]
    launched = launches_of(xp, monkeypatch)
    found = [host(each) for each in compute(*arrays)]
    for own, each in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own, each, rtol=1e-5, atol=2e-6)
    assert launched.count("recurrent_step") == steps * count
    assert len([name for name in launched if name == "product"]) == count
