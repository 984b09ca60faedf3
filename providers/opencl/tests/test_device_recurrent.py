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
from ort_sdk.device.recurrent.lstm import lstm

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
    # one or two products and a few element-wise kernels for each step and direction, a launch for each step, or one for all
    assert len(calls) == 1
    is_plain = lengths is None
    assert calls[0] <= (3 if op_type == "LSTM" and is_plain else 2 * TIME + 10 if op_type == "RNN" and is_plain else 2 * TIME * 7)


def logistic(x):
    return 1 / (1 + np.exp(-x))


def lstm_by_numpy(x, w, r, b, initial, backwards):
    """(sequence, last hidden states, last cells) in float64."""
    units = r.shape[2]
    sequences, states = [], []
    for direction, reverse in enumerate(backwards):
        hidden, cell = (each[direction] for each in initial)
        rows = [None] * len(x)
        for time in reversed(range(len(x))) if reverse else range(len(x)):
            bias = b[direction, : 4 * units] + b[direction, 4 * units :]
            i, o, f, c = np.split(x[time] @ w[direction].T + hidden @ r[direction].T + bias, 4, axis=-1)
            cell = logistic(f) * cell + logistic(i) * np.tanh(c)
            hidden = rows[time] = logistic(o) * np.tanh(cell)
        sequences.append(rows)
        states.append((hidden, cell))
    last = [np.stack([each[position] for each in states]) for position in range(2)]
    return np.stack([np.stack(rows) for rows in sequences], axis=1), *last


LAYERS = [
    ((5, 1, 3, 1), "forward", False),
    ((1, 2, 9, 7), "reverse", True),
    ((9, 3, 20, 33), "bidirectional", False),
    ((4, 1, 16, 256), "reverse", False),
    ((3, 2, 8, 96), "bidirectional", True),
]
"""(Steps, batch, size of an input, units), direction, whether the batch is the first axis."""


@pytest.mark.parametrize(("sizes", "direction", "batch_first"), LAYERS)
def test_all_steps_of_an_lstm_are_one_kernel(xp, sizes, direction, batch_first, monkeypatch):
    (time, batch, size, units), rng = sizes, np.random.default_rng(0)
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    count = len(backwards)
    shapes = [(time, batch, size), (count, 4 * units, size), (count, 4 * units, units), (count, 8 * units)]
    x, w, r, b = (rng.standard_normal(shape) / np.sqrt(shape[-1]) for shape in shapes)
    initial = [rng.standard_normal((count, batch, units)) for _ in range(2)]
    names = ["x", "w", "r", "b", None, "h", "c"]
    arguments = tuple(None if name is None else NodeArg(name, "tensor(float)") for name in names)
    attributes = {"direction": direction, "hidden_size": units, "layout": int(batch_first)}
    outputs = tuple(NodeArg(name, "tensor(float)") for name in ("y", "yh", "yc"))
    compute = lstm(KernelInfo("LSTM", 14, attributes=attributes, inputs=arguments, outputs=outputs), xp, None)
    own = [xp.from_host(each.astype(np.float32)) for each in (x, w, r, b, *initial)]
    if batch_first:
        own = [xp.permute_dims(own[0], (1, 0, 2)), *own[1:4], *(xp.permute_dims(each, (1, 0, 2)) for each in own[4:])]
    launched = launches_of(xp, monkeypatch)
    found = compute(*own[:4], None, *own[4:])
    assert [name for name in launched if name.startswith("lstm")] == [launched[-1]]
    wanted = lstm_by_numpy(x, w, r, b, initial, backwards)
    if batch_first:
        wanted = wanted[0].transpose(2, 0, 1, 3), *(each.transpose(1, 0, 2) for each in wanted[1:])
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(xp.to_host(one), other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_layers_without_states_and_with_many_units(kind):
    rng, dtype = np.random.default_rng(0), helper.tensor_dtype_to_np_dtype(kind)
    for units in (40, 300):
        shapes = {"w": (1, 4 * units, 6), "r": (1, 4 * units, units)}
        weights = [
            onnx.numpy_helper.from_array((rng.standard_normal(s) / s[-1] ** 0.5).astype(dtype), n) for n, s in shapes.items()
        ]
        node = helper.make_node("LSTM", ["x", "w", "r"], ["", "h"], hidden_size=units)
        values = [helper.make_tensor_value_info(name, kind, shape) for name, shape in (("x", [7, 2, 6]), ("h", None))]
        graph = helper.make_graph([node], "g", values[:1], values[1:], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()
        session = ort.InferenceSession(model, providers=["OpenCLExecutionProvider", "CPUExecutionProvider"])
        oracle = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        x = rng.standard_normal((7, 2, 6)).astype(dtype)
        for _ in range(3):
            ((own,), (wanted,)) = session.run(None, {"x": x}), oracle.run(None, {"x": x})
            tolerance = 1e-5 if kind == TensorProto.FLOAT else 2e-3
            np.testing.assert_allclose(own.astype(np.float32), wanted.astype(np.float32), rtol=tolerance, atol=tolerance)


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
