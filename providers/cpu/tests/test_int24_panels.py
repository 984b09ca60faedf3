"""Recurrent weights as whole numbers of 24 bits: how near they are, when they are taken, and what layers make of them."""

from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.rnn import packing, select
from ort_sdk_cpu.rnn.packing_int24 import packed_int24, unpacked_int24

import ort_sdk

is_compiled = pytest.mark.skipif(
    not libraries.compiled_kernels().is_usable or instruction_set() < InstructionSet.AVX512,
    reason="no compiler, or short vectors",
)
TOGETHER = {"lstm": (4,), "gru": (3,), "gru_reset_first": (2, 1)}
FORMS = {"lstm": ("LSTM", 4, {}), "gru": ("GRU", 3, {"linear_before_reset": 1}), "gru_reset_first": ("GRU", 3, {})}
CPU = ["CPUExecutionProvider"]


def panels(form, hidden, directions=2):
    shape = (directions, FORMS[form][1] * hidden, hidden)
    weights = np.random.default_rng(hidden).standard_normal(shape).astype(np.float32)
    return packing.panels_of(weights, form)


def units_of(wide, hidden, form):
    """(panel, hidden, gates, unit) of the first gates that are computed together."""
    gates, count = TOGETHER[form][0], -(-hidden // 16)
    return wide[:, : count * hidden * gates * 16].reshape(-1, hidden, gates, 16)


@pytest.mark.parametrize("hidden", [16, 20, 36])
@pytest.mark.parametrize("form", FORMS)
def test_numbers_are_half_a_bit_of_24_away(form, hidden):
    """And rounded to float32 where they are written as such."""
    wide = panels(form, hidden)
    narrow = packed_int24(wide, hidden, TOGETHER[form])
    assert narrow.shape[1] == wide.shape[1] * 3 + wide.shape[1] // hidden * 4
    found = unpacked_int24(narrow.reshape(-1), 2, hidden, TOGETHER[form])
    exact, near = (units_of(each, hidden, form).astype(np.float64) for each in (wide, found))
    largest = np.abs(exact).max(axis=1, keepdims=True)
    assert np.all(np.abs(near - exact) <= (1.001 * largest + np.abs(exact)) * 2.0**-24)
    assert np.any(near != exact)


@pytest.mark.parametrize("value", [100.0, np.inf, -np.inf, np.nan])
def test_weights_of_large_spread_stay(value):
    wide = panels("lstm", 512, directions=1)
    assert packed_int24(wide, 512, (4,)) is not None
    units_of(wide, 512, "lstm")[7, 300, 2, 11] = value
    assert packed_int24(wide, 512, (4,)) is None


def test_zeros_stay_zeros():
    wide = panels("lstm", 16, directions=1)
    units_of(wide, 16, "lstm")[0, :, 1, 3] = 0
    found = units_of(unpacked_int24(packed_int24(wide, 16, (4,)).reshape(-1), 1, 16, (4,)), 16, "lstm")
    assert not found[0, :, 1, 3].any()
    assert found[0, :, 1, 4].all()


def model_of(form, hidden, direction, largest=0.0, inputs=24):
    op_type, gates, attributes = FORMS[form]
    count, rng = 2 if direction == "bidirectional" else 1, np.random.default_rng(0)
    shapes = {"w": (count, gates * hidden, inputs), "r": (count, gates * hidden, hidden), "b": (count, 2 * gates * hidden)}
    weights = {name: (rng.standard_normal(shape) / hidden**0.5).astype(np.float32) for name, shape in shapes.items()}
    if largest:
        weights["r"][0, 3, 2] = largest
    names = [*shapes, "lengths"]
    node = helper.make_node(op_type, ["x", *names], ["y", "h"], hidden_size=hidden, direction=direction, **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", "batch", inputs])
    lengths = helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "h")]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "layer", [x, lengths], outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8).SerializeToString()


@pytest.fixture
def forms(monkeypatch):
    """Whether each layer's weights were packed as whole numbers; they are not too small for it."""
    monkeypatch.setattr(select, "MIN_INT24_BYTES", 0)
    found = []

    def packed(*arguments):
        result = packed_int24(*arguments)
        found.append(result is not None)
        return result

    monkeypatch.setattr(packing, "packed_int24", packed)
    return found


@is_compiled
@pytest.mark.parametrize("programs", ["0", "1"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize(("form", "hidden"), [("lstm", 76), *((form, 260) for form in FORMS)])
def test_layers_are_onnxruntimes(form, hidden, direction, programs, forms):
    model = model_of(form, hidden, direction)
    options = ort_sdk.SessionOptions()
    options.add_session_config_entry("session.disable_programs", programs)
    session, wanted = ort_sdk.InferenceSession(model, options, providers=CPU), onnxruntime.InferenceSession(model, providers=CPU)
    for steps, batch in ((9, 1), (9, 1), (4, 3), (3, 6)):
        lengths = np.arange(steps, steps - batch, -1, dtype=np.int32).clip(1)
        feeds = {"x": np.random.default_rng(batch).standard_normal((steps, batch, 24)).astype(np.float32), "lengths": lengths}
        for ours, theirs in zip(session.run(None, feeds), wanted.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6)
    assert forms == [True]


@is_compiled
@pytest.mark.parametrize(("largest", "is_narrow"), [(0.0, True), (50.0, False)])
def test_weights_are_found_again_in_a_folder(largest, is_narrow, forms, tmp_path):
    model, options = model_of("lstm", 260, "forward", largest), ort_sdk.SessionOptions()
    options.add_session_config_entry("session.prepack_cache_dir", str(tmp_path))
    feeds = {"x": np.ones((5, 1, 24), np.float32), "lengths": np.array([5], np.int32)}
    wanted = onnxruntime.InferenceSession(model, providers=CPU).run(None, feeds)[0]
    for _ in range(2):
        found = ort_sdk.InferenceSession(model, options, providers=CPU).run(None, feeds)[0]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6)
        assert forms == [is_narrow]


@is_compiled
def test_what_is_computed_without_tasks_gets_what_the_numbers_stand_for(forms):
    rng = np.random.default_rng(0)
    arrays = {1: rng.standard_normal((2, 80, 6)), 2: rng.standard_normal((2, 80, 20)), 3: rng.standard_normal((2, 160))}
    arrays = {index: array.astype(np.float32) for index, array in arrays.items()}
    info = SimpleNamespace(constants=arrays, has_input=lambda index: index in arrays)
    weights = packing.LayerWeights(info, "lstm")
    for index in (1, 2):
        weights.use_packed(index, weights.packed(index, arrays[index].reshape(-1).view(np.uint8)))
    assert forms == [True]
    assert weights.is_int24(None)
    assert not weights.is_int24(arrays[2])
    found = weights.plain([None, None, None, arrays[3]])
    np.testing.assert_array_equal(found[1], arrays[1])
    np.testing.assert_allclose(found[2], arrays[2], rtol=2.0**-24, atol=1.001 * 2.0**-24 * np.abs(arrays[2]).max())


def test_small_layers_and_those_of_other_sizes_keep_float32():
    assert select.is_worth_int24((1, 2048, 512), (4,)) == (instruction_set() >= InstructionSet.AVX512)
    assert not select.is_worth_int24((1, 1024, 256), (4,))
    assert not select.is_worth_int24((1, 2056, 514), (4,))
    assert not select.is_worth_int24((1, 2048, 2048), (1,))
