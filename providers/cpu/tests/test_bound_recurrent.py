"""Small recurrent layers bound to arrays that stay: all directions, any layout, and no Python between the steps around them."""

from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.platform import libraries, threads
from ort_sdk_cpu.rnn import operators

import ort_sdk
from ort_sdk.api import NodeArg


@pytest.mark.parametrize("sizes", [(33, 1, 8), (1, 33, 8), (3, 2, 4)], ids=str)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op_type", ["GRU", "LSTM", "RNN"])
def test_layers_from_any_layout(check, op_type, direction, sizes, recurrent_inputs):
    directions = 2 if direction == "bidirectional" else 1
    x, *others = recurrent_inputs(op_type, directions, sizes)
    wanted = (0, 1, 2) if op_type == "LSTM" else (0, 1)
    for lying in (x, np.asfortranarray(x), np.repeat(x, 2, axis=2)[:, :, ::2]):
        options = {"constants": (1, 2, 3), "direction": direction, "hidden_size": 5, "wanted": wanted}
        check(op_type, lying, *others, tolerance=1e-5, **options)


@pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="no compiler")
def test_both_directions_of_a_small_layer_need_no_python(monkeypatch, make_kernel, recurrent_inputs):
    monkeypatch.setattr(operators, "_is_loaded", lambda _name: True)
    inputs = recurrent_inputs("GRU", 2, (33, 1, 8))
    inputs[0] = np.asfortranarray(inputs[0])
    outputs = [np.empty((33, 2, 1, 5), np.float32), np.empty((2, 1, 5), np.float32)]
    declared = tuple(NodeArg(name, "tensor(float)", array.shape) for name, array in zip("yh", outputs, strict=True))
    attributes = {"direction": "bidirectional", "hidden_size": 5, "linear_before_reset": 1}
    kernel = make_kernel("GRU", inputs, attributes, "", None, (1, 2, 3), declared)
    slots = [[SimpleNamespace(array=array, is_fixed=True) for array in arrays] for arrays in (inputs, outputs)]
    assert kernel.bind(*slots).native is not None


@pytest.mark.parametrize("has_lengths", [False, True])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize(("sizes", "hidden"), [((40, 1, 8), 64), ((3, 20, 6), 72), ((2, 3, 4), 260)], ids=str)
@pytest.mark.parametrize(("op_type", "resets_last"), [("GRU", 0), ("GRU", 1), ("LSTM", 0), ("RNN", 0)])
def test_large_layers_are_shared_by_directions_or_units(
    check, op_type, resets_last, direction, sizes, hidden, has_lengths, recurrent_inputs
):
    inputs = recurrent_inputs(op_type, 2 if direction == "bidirectional" else 1, sizes, hidden)
    if has_lengths:
        inputs[4] = (np.arange(sizes[1], dtype=np.int32) * 7 + sizes[0] - 1) % (sizes[0] + 1)
    attributes = {"direction": direction, "hidden_size": hidden}
    if op_type == "GRU":
        attributes["linear_before_reset"] = resets_last
    wanted = (0, 1, 2) if op_type == "LSTM" else (0, 1)
    check(op_type, *inputs, constants=(1, 2, 3), tolerance=1e-5, wanted=wanted, **attributes)


def bidirectional(weights, hidden):
    """A model of one LSTM of both directions."""
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], direction="bidirectional", hidden_size=hidden)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    tensors = [numpy_helper.from_array(array, name) for name, array in zip("wrb", weights, strict=True)]
    graph = helper.make_graph([node], "both", values[:1], values[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("is_busy", [False, True])
@pytest.mark.parametrize(("steps", "hidden"), [(40, 64), (100, 96)])
def test_directions_do_without_a_second_thread(monkeypatch, steps, hidden, is_busy, recurrent_inputs):
    monkeypatch.setattr(threads, "should_run_serially", lambda _: is_busy)
    x, *weights = recurrent_inputs("LSTM", 2, (steps, 1, 16), hidden)[:4]
    model = bidirectional(weights, hidden)
    (expected,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for count in (1, 2, 3):
        options = ort_sdk.SessionOptions()
        options.intra_op_num_threads = count
        session = ort_sdk.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        for _ in range(4):
            np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5, atol=1e-5)
