"""Initializers that are inputs, too: constants of a session until a run feeds one."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk as ort
from ort_sdk.api import InvalidArgument

RNG = np.random.default_rng(5)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


WEIGHT, SCALE = normal(4, 3, 3, 3), normal(4)
X = normal(1, 3, 8, 8)


def model_of(ir_version=7):
    """A convolution and a normalization whose parameters are inputs with defaults."""
    parameters = {"w": WEIGHT, "scale": SCALE, "shift": normal(4), "mean": normal(4), "variance": np.abs(normal(4)) + 1}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])]
    inputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in parameters.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in parameters.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=ir_version).SerializeToString()


def expected(onnxruntime, feeds):
    return onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


MODEL = model_of()


@pytest.fixture
def onnxruntime():
    return pytest.importorskip("onnxruntime")


def test_constants_are_folded_and_may_be_fed(onnxruntime):
    session = ort.InferenceSession(MODEL)
    assert [node.op_type for node in session._state.model.graph.nodes] == ["Conv"]
    assert [value.name for value in session.get_inputs()] == ["x"]
    assert {value.name for value in session.get_overridable_initializers()} == {"w", "scale", "shift", "mean", "variance"}
    feeds = [{"x": X}, {"x": X, "w": 2 * WEIGHT}, {"x": X, "scale": -SCALE, "w": WEIGHT}, {"x": X}]
    for _ in range(3):
        for feed in feeds:
            (found,) = session.run(None, feed)
            np.testing.assert_allclose(found, expected(onnxruntime, feed), rtol=1e-4, atol=1e-5)


def test_bound_values_may_replace_them(onnxruntime):
    session = ort.InferenceSession(MODEL)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_cpu_input("w", 3 * WEIGHT)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    (found,) = binding.copy_outputs_to_cpu()
    np.testing.assert_allclose(found, expected(onnxruntime, {"x": X, "w": 3 * WEIGHT}), rtol=1e-4, atol=1e-5)


def test_wrong_values_are_refused_as_before():
    session = ort.InferenceSession(MODEL)
    with pytest.raises(InvalidArgument, match="w"):
        session.run(None, {"x": X, "w": WEIGHT[:2]})
    with pytest.raises(InvalidArgument, match="missing"):
        session.run(None, {"w": WEIGHT})
    with pytest.raises(InvalidArgument, match="other"):
        session.run(None, {"x": X, "other": X})


def test_a_saved_model_keeps_its_inputs(tmp_path):
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    ort.InferenceSession(MODEL, options)
    assert {value.name for value in onnx.load(tmp_path / "saved.onnx").graph.input} >= {"x", "w", "scale"}


def test_a_file_is_found_from_another_folder(onnxruntime, tmp_path, monkeypatch):
    (tmp_path / "model.onnx").write_bytes(MODEL)
    monkeypatch.chdir(tmp_path)
    session = ort.InferenceSession("model.onnx")
    monkeypatch.chdir(tmp_path.parent)
    feeds = {"x": X, "w": 2 * WEIGHT}
    np.testing.assert_allclose(session.run(None, feeds)[0], expected(onnxruntime, feeds), rtol=1e-4, atol=1e-5)
