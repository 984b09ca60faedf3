"""LSTM and GRU in sessions, whose constant weights are packed: in programs, without them, and from a folder of packed weights."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.rnn.packing import _unpacked, panels_of

import ort_sdk as ort

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="needs numba")

FORMS = {"lstm": ("LSTM", 4, {}), "gru": ("GRU", 3, {"linear_before_reset": 1}), "gru_reset_first": ("GRU", 3, {})}
HIDDEN, INPUTS = 70, 24


def model_of(form, direction, hidden=HIDDEN):
    op_type, gates, attributes = FORMS[form]
    count, rng = 2 if direction == "bidirectional" else 1, np.random.default_rng(0)
    shapes = {"w": (count, gates * hidden, INPUTS), "r": (count, gates * hidden, hidden), "b": (count, 2 * gates * hidden)}
    weights = [
        numpy_helper.from_array((rng.standard_normal(shape) / 8).astype(np.float32), name) for name, shape in shapes.items()
    ]
    node = helper.make_node(op_type, ["x", *shapes], ["y", "h"], hidden_size=hidden, direction=direction, **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", "batch", INPUTS])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "h")]
    graph = helper.make_graph([node], "layer", [x], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def x_of(steps, batch):
    return np.random.default_rng(steps).standard_normal((steps, batch, INPUTS)).astype(np.float32)


@pytest.mark.parametrize("programs", ["0", "1"])
@pytest.mark.parametrize("form", FORMS)
def test_layers_of_sessions(form, programs, tmp_path):
    model = model_of(form, "forward")
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_programs", programs)
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for steps, batch in ((5, 2), (5, 2), (5, 2), (20, 3), (1, 1), (2, 40)):
        x = x_of(steps, batch)
        for found, wanted in zip(session.run(None, {"x": x}), ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("hidden", "steps", "batch"), [(4, 4, 2), (4, 20, 3), (70, 4, 2), (70, 20, 3)])
def test_weights_that_are_inputs_may_differ_from_run_to_run(form, hidden, steps, batch):
    model = model_of(form, "forward", hidden)
    weights = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    del model.graph.initializer[:]
    model.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, weight.shape) for name, weight in weights.items()
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for factor in (1, 0.5, -0.25, 1, 0.75):
        feeds = {"x": x_of(steps, batch)} | {name: weight * np.float32(factor) for name, weight in weights.items()}
        for found, wanted in zip(session.run(None, feeds), ReferenceEvaluator(model).run(None, feeds), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize("form", FORMS)
def test_a_direction_backwards_is_one_forwards_over_the_sequence_turned_round(form, direction):
    model = model_of(form, direction)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    last = len(session.run(None, {"x": x_of(6, 2)})[1]) - 1
    for weight in model.graph.initializer:
        weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight)[last:].copy(), weight.name))
    next(each for each in model.graph.node[0].attribute if each.name == "direction").s = b"forward"
    x = x_of(6, 2)
    sequence, hidden = ReferenceEvaluator(model).run(None, {"x": x[::-1].copy()})
    for _ in range(3):
        found = session.run(None, {"x": x})
        np.testing.assert_allclose(found[0][:, last], sequence[::-1, 0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(found[1][last], hidden[0], rtol=1e-5, atol=1e-5)


def test_packed_weights_are_found_again(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(model_of("lstm", "forward"), path)
    options = ort.SessionOptions()
    options.add_session_config_entry("session.prepack_cache_dir", str(tmp_path / "packed"))
    x, results = x_of(4, 1), []
    for _ in range(2):
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        results.append(session.run(None, {"x": x})[0])
    assert any((tmp_path / "packed").rglob("*"))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("hidden", [1, 16, 33])
def test_panels_hold_all_weights_at_aligned_addresses(form, hidden):
    weights = np.random.default_rng(0).standard_normal((2, FORMS[form][1] * hidden, hidden)).astype(np.float32)
    panels = panels_of(weights, form)
    assert panels.ctypes.data % 64 == 0
    assert panels.shape == (2, FORMS[form][1] * -(-hidden // 16) * 16 * hidden)
    np.testing.assert_array_equal(_unpacked(panels, weights.shape, form), weights)
    assert np.count_nonzero(panels) == weights.size
