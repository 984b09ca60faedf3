"""Profiles and optimized models, written by onnxruntime and here."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from tests.session import models

X = np.array([[1, 2], [3, 4]], np.float32)
CPU = ["CPUExecutionProvider"]


def test_profile(ort, session, tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "mine")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    made = session(models.affine(), options)
    assert made.get_profiling_start_time_ns() > 1_600_000_000 * 10**9
    made.run(None, {"x": X})
    path = made.end_profiling()
    assert path.startswith(str(tmp_path / "mine"))
    assert path.endswith(".json")
    events = json.loads(Path(path).read_text(encoding="utf-8"))
    for event in events:
        assert {"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"} <= event.keys()
    nodes = {
        event["name"]: event["args"] for event in events if event["cat"] == "Node" and event["name"].endswith("_kernel_time")
    }
    assert set(nodes) == {"product_kernel_time", "sum_kernel_time", "rectified_kernel_time"}
    assert nodes["sum_kernel_time"]["op_name"] == "Add"
    assert nodes["sum_kernel_time"]["provider"] == "CPUExecutionProvider"
    assert "model_run" in {event["name"] for event in events if event["cat"] == "Session"}
    assert made.end_profiling() == ""
    assert len(made.run(None, {"x": X})) == 2


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
def test_saved_model_gives_the_same(ort, session, tmp_path, level):
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    expected = session(models.affine(), options).run(None, {"x": X, "c": np.zeros(3, np.float32)})
    onnx.checker.check_model(onnx.load(tmp_path / "saved.onnx")) if level != "ORT_ENABLE_ALL" else None
    made = session(tmp_path / "saved.onnx")
    assert [value.name for value in made.get_inputs()] == ["x"]
    for got, wanted in zip(made.run(None, {"x": X, "c": np.zeros(3, np.float32)}), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_no_folder_to_save_to(ort, session):
    options = ort.SessionOptions()
    options.optimized_model_filepath = "/nope/saved.onnx"
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument):
        session(models.affine(), options)


def rich_model():
    """Weights of several types and sizes, bodies with weights, attributes of all kinds, a text initializer."""
    large = np.arange(2000, dtype=np.float32).reshape(2, 1000)
    body_weight = numpy_helper.from_array(np.full((1000,), 2, np.float32), "body_weight")
    body = []
    for op in ("Mul", "Add"):
        node = helper.make_node(op, ["p", "body_weight"], ["out"])
        body.append(helper.make_graph([node], f"{op}_body", [], [models.value("out", ["b", 1000])], [body_weight]))
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["p"]),
        helper.make_node("If", ["flag"], ["y"], then_branch=body[0], else_branch=body[1]),
        helper.make_node("Identity", ["texts"], ["t"]),
        helper.make_node("Cast", ["half"], ["h"], to=TensorProto.FLOAT),
    ]
    initializers = [
        numpy_helper.from_array(large, "large"),
        numpy_helper.from_array(np.array(["ä", "b"], object), "texts"),
        numpy_helper.from_array(np.arange(3, dtype=np.float16), "half"),
    ]
    outputs = [
        models.value("y", ["b", 1000]),
        models.value("t", [2], TensorProto.STRING),
        models.value("h", [3]),
    ]
    inputs = [models.value("x"), models.value("flag", [], TensorProto.BOOL)]
    return models.model(nodes, inputs, outputs, initializers)


@pytest.mark.parametrize("smallest", ["0", "1024", "100000"])
def test_weights_in_an_external_file(ort, session, tmp_path, smallest):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "saved.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", smallest)
    original = session(rich_model().SerializeToString(), options)
    saved = onnx.load(tmp_path / "saved.onnx", load_external_data=False)
    outside = {tensor.name for tensor in saved.graph.initializer if tensor.data_location == TensorProto.EXTERNAL}
    assert ("large" in outside) == (smallest != "100000")
    assert (tmp_path / "saved.bin").exists() == (smallest != "100000")
    for flag in (True, False):
        feeds = {"x": X, "flag": np.array(flag)}
        for package in (ort_sdk, __import__("onnxruntime")):
            again = package.InferenceSession(str(tmp_path / "saved.onnx"), providers=CPU)
            for got, wanted in zip(again.run(None, feeds), original.run(None, feeds), strict=True):
                np.testing.assert_array_equal(got, wanted)


def test_large_tensors_are_aligned(tmp_path):
    weights = [numpy_helper.from_array(np.zeros(count, np.uint8), f"w{count}") for count in (2000, (1 << 20) + 1, 3000)]
    nodes = [helper.make_node("Identity", [tensor.name], [f"y{tensor.name}"]) for tensor in weights]
    outputs = [models.value(f"y{tensor.name}", None, TensorProto.UINT8) for tensor in weights]
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = ort_sdk.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "saved.bin")
    ort_sdk.InferenceSession(models.model(nodes, [], outputs, weights).SerializeToString(), options, providers=CPU)
    saved = onnx.load(tmp_path / "saved.onnx", load_external_data=False)
    offsets = [int(next(e.value for e in tensor.external_data if e.key == "offset")) for tensor in saved.graph.initializer]
    assert offsets == [0, 4096, 4096 + (1 << 20) + 1]
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["saved.bin", "saved.onnx"]


def test_functions_are_saved(tmp_path):
    body = [helper.make_node("Mul", ["a", "a"], ["square"]), helper.make_node("Add", ["square", "a"], ["b"])]
    function = helper.make_function("mine", "SquarePlus", ["a"], ["b"], body, [helper.make_opsetid("", 17)])
    node = helper.make_node("SquarePlus", ["x"], ["y"], domain="mine")
    made = models.model([node], [models.value("x")], [models.value("y")], imports=[helper.make_opsetid("mine", 1)])
    made.functions.append(function)
    options = ort_sdk.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    ort_sdk.InferenceSession(made.SerializeToString(), options, providers=CPU)
    import onnxruntime

    for package in (ort_sdk, onnxruntime):
        again = package.InferenceSession(str(tmp_path / "saved.onnx"), providers=CPU)
        np.testing.assert_array_equal(again.run(None, {"x": X})[0], X * X + X)


def test_refused_save_settings(tmp_path):
    for key, value, error in (
        ("session.save_model_format", "TFLITE", ValueError),
        ("session.optimized_model_external_initializers_min_size_in_bytes", "many", ValueError),
        ("session.optimized_model_external_initializers_file_name", "../saved.bin", ValueError),
    ):
        options = ort_sdk.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "saved.onnx")
        options.add_session_config_entry(key, value)
        with pytest.raises(error):
            ort_sdk.InferenceSession(models.affine(), options, providers=CPU)
    assert not list(tmp_path.iterdir())


def test_model_compiler(ort, tmp_path):
    source = tmp_path / "model.onnx"
    source.write_bytes(models.affine())
    options = ort.SessionOptions()
    target = tmp_path / "compiled.onnx"
    ort.ModelCompiler(options, source).compile_to_file(str(target))
    content = ort.ModelCompiler(options, models.affine()).compile_to_bytes()
    streamed = []
    ort.ModelCompiler(options, str(source)).compile_to_stream(streamed.append)
    for compiled in (target.read_bytes(), content, b"".join(streamed)):
        assert len(ort.InferenceSession(compiled, providers=CPU).run(None, {"x": X})) == 2


def test_model_compiler_flags(ort, tmp_path):
    flags = ort.OrtCompileApiFlags
    with pytest.raises(TypeError):
        ort.ModelCompiler({}, models.affine())
    compiler = ort.ModelCompiler(ort.SessionOptions(), models.affine(), flags=flags.ERROR_IF_NO_NODES_COMPILED)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.Fail, match="Unable to compile any nodes"):
        compiler.compile_to_bytes()
    target = tmp_path / "there.onnx"
    target.write_bytes(b"")
    compiler = ort.ModelCompiler(ort.SessionOptions(), models.affine(), flags=flags.ERROR_IF_OUTPUT_FILE_EXISTS)
    with pytest.raises(Exception, match=r"exist"):
        compiler.compile_to_file(str(target))


def test_model_compiler_without_a_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="File doesn't exist"):
        ort_sdk.ModelCompiler(ort_sdk.SessionOptions(), tmp_path / "nope.onnx")
