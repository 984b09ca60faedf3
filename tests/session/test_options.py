"""SessionOptions and RunOptions, in onnxruntime and here."""

import json

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk
from tests.session import models

X = np.array([[1, 2], [3, 4]], np.float32)
PROPERTIES = [
    "enable_cpu_mem_arena",
    "enable_mem_pattern",
    "enable_mem_reuse",
    "enable_profiling",
    "inter_op_num_threads",
    "intra_op_num_threads",
    "log_severity_level",
    "log_verbosity_level",
    "logid",
    "optimized_model_filepath",
    "profile_file_prefix",
    "use_deterministic_compute",
    "use_per_session_threads",
]


def errors(ort):
    return ort.capi.onnxruntime_pybind11_state


def test_defaults_agree():
    import onnxruntime

    mine, theirs = ort_sdk.SessionOptions(), onnxruntime.SessionOptions()
    assert {name: getattr(mine, name) for name in PROPERTIES} == {name: getattr(theirs, name) for name in PROPERTIES}
    for name in ("graph_optimization_level", "execution_mode", "execution_order"):
        assert int(getattr(mine, name)) == int(getattr(theirs, name))
    mine, theirs = ort_sdk.RunOptions(), onnxruntime.RunOptions()
    for name in ("log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches", "terminate"):
        assert getattr(mine, name) == getattr(theirs, name)


def test_both_have_the_same_methods():
    import onnxruntime

    for name in ("SessionOptions", "RunOptions", "InferenceSession", "OrtValue", "IOBinding", "SparseTensor", "ModelCompiler"):
        theirs = {method for method in dir(getattr(onnxruntime, name)) if not method.startswith("_")}
        assert not theirs - set(dir(getattr(ort_sdk, name))), name


@pytest.mark.parametrize("made", ["SessionOptions", "RunOptions"])
def test_unknown_attribute(ort, made):
    with pytest.raises(AttributeError):
        getattr(ort, made)().foo = 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("intra_op_num_threads", 1.5),
        ("intra_op_num_threads", "a"),
        ("intra_op_num_threads", None),
        ("intra_op_num_threads", 2**40),
        ("graph_optimization_level", 1),
        ("graph_optimization_level", "a"),
        ("execution_mode", 0),
        ("logid", 3),
        ("logid", None),
        ("optimized_model_filepath", 0),
    ],
)
def test_wrong_types(ort, name, value):
    with pytest.raises(TypeError, match="incompatible function arguments"):
        setattr(ort.SessionOptions(), name, value)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("intra_op_num_threads", np.int64(3), 3),
        ("log_severity_level", True, 1),
        ("logid", b"x", "x"),
        ("enable_profiling", 1, True),
    ],
)
def test_types_that_convert(ort, name, value, kept):
    options = ort.SessionOptions()
    setattr(options, name, value)
    assert getattr(options, name) == kept
    assert type(getattr(options, name)) is type(kept)


def test_config_entries(ort):
    options = ort.SessionOptions()
    options.add_session_config_entry("any.key", "1")
    options.add_session_config_entry("any.key", "2")
    assert options.get_session_config_entry("any.key") == "2"
    with pytest.raises(RuntimeError, match="SessionOptions does not have configuration with key: zz"):
        options.get_session_config_entry("zz")
    with pytest.raises(TypeError, match="incompatible function arguments"):
        options.add_session_config_entry("a", 1)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("", "", "Config key is empty or longer than maximum length 1024"),
        ("a" * 1025, "", "Config key is empty or longer than maximum length 1024"),
        ("a", "b" * 8193, "Config value is longer than maximum length: 8192"),
    ],
)
def test_limits_of_config_entries(ort, key, value, text):
    with pytest.raises(RuntimeError, match=text):
        ort.SessionOptions().add_session_config_entry(key, value)
    with pytest.raises(RuntimeError, match=text):
        ort.RunOptions().add_run_config_entry(key, value)


def test_run_config_entries(ort):
    options = ort.RunOptions()
    options.add_run_config_entry("k", "v")
    assert options.get_run_config_entry("k") == "v"
    with pytest.raises(RuntimeError, match="RunOptions does not have configuration with key: zz"):
        options.get_run_config_entry("zz")


def test_free_dimension_by_name(ort, session):
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("b", 3)
    made = session(models.identity(), options)
    assert made.get_inputs()[0].shape == [3, 2]
    assert made.get_outputs()[0].shape == [3, 2]
    with pytest.raises(errors(ort).InvalidArgument, match="index: 0 Got: 2 Expected: 3"):
        made.run(None, {"x": X})
    assert made.run(None, {"x": np.ones((3, 2), np.float32)})[0].shape == (3, 2)


def test_free_dimension_may_have_any_size(ort, session):
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("b", 2**40)
    with pytest.raises(errors(ort).InvalidArgument, match=f"Expected: {2**40}"):
        session(models.identity(), options).run(None, {"x": X})


def test_fewer_threads_than_none_are_the_default(ort, session):
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = -1
    np.testing.assert_array_equal(session(models.identity(), options).run(None, {"x": X})[0], X)


def test_enumerations_print_their_names(ort):
    options = ort.SessionOptions()
    assert str(options.graph_optimization_level) == "GraphOptimizationLevel.ORT_ENABLE_ALL"
    assert f"{options.execution_mode}" == "ExecutionMode.ORT_SEQUENTIAL"
    assert options.graph_optimization_level == 99


def denoted():
    made = models.model([helper.make_node("Relu", ["x"], ["y"])], [models.value("x", ["b", 2])], [models.value("y", ["b", 2])])
    made.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    return made.SerializeToString()


def test_free_dimension_by_denotation(ort, session):
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_denotation("DATA_BATCH", 5)
    assert session(denoted(), options).get_inputs()[0].shape == [5, 2]


def test_free_dimension_must_be_a_number(ort):
    with pytest.raises(TypeError):
        ort.SessionOptions().add_free_dimension_override_by_name("b", 1.5)


def test_options_serve_many_sessions(ort, session):
    options = ort.SessionOptions()
    for logid in ("first", "second"):
        options.logid = logid
        assert session(models.identity(), options).get_session_options().logid == logid


def test_sessions_copy_their_options():
    options = ort_sdk.SessionOptions()
    options.logid = "first"
    made = ort_sdk.InferenceSession(models.identity(), options, providers=["CPUExecutionProvider"])
    options.logid = "second"
    assert made.get_session_options().logid == "first"
    made.get_session_options().logid = "third"
    assert made.get_session_options().logid == "first"


def test_add_initializer(ort, session):
    given = np.full((2, 3), 2, np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(given)
    options = ort.SessionOptions()
    options.add_initializer("w", value)
    options.add_initializer("nobody", value)
    for _ in range(2):
        made = session(models.affine(), options)
        np.testing.assert_array_equal(made.run(["y"], {"x": X})[0], X @ given + 1)


def test_add_initializer_takes_ort_values(ort):
    with pytest.raises(RuntimeError, match="must be an OrtValue"):
        ort.SessionOptions().add_initializer("w", X)


def external(tmp_path=None, location="w.bin"):
    """The affine model with its weights in a file that does not exist."""
    import onnx

    made = onnx.load_from_string(models.affine())
    weights = next(tensor for tensor in made.graph.initializer if tensor.name == "w")
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "4"), ("length", "24")):
        weights.external_data.add(key=key, value=value)
    return made.SerializeToString()


WEIGHTS = np.arange(1, 7, dtype=np.float32).reshape(2, 3)


def test_add_external_initializers(ort, session):
    options = ort.SessionOptions()
    options.add_external_initializers(["w"], [ort.OrtValue.ortvalue_from_numpy(WEIGHTS)])
    np.testing.assert_array_equal(session(external(), options).run(["y"], {"x": X})[0], X @ WEIGHTS + 1)


def test_external_initializers_pair_up(ort):
    with pytest.raises(RuntimeError, match="equal length"):
        ort.SessionOptions().add_external_initializers(["w"], [])


@pytest.mark.parametrize("location", ["w.bin", "./w.bin"])
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: np.frombuffer(data, np.uint8)])
def test_external_files_in_memory(ort, session, location, wrap):
    content = wrap(b"____" + WEIGHTS.tobytes())
    options = ort.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [content], [28])
    for _ in range(2):
        np.testing.assert_array_equal(session(external(location=location), options).run(["y"], {"x": X})[0], X @ WEIGHTS + 1)


def test_external_files_in_memory_that_are_too_short(ort, session):
    options = ort.SessionOptions()
    options.add_external_initializers_from_files_in_memory(["w.bin"], [b"12345678"], [8])
    with pytest.raises(errors(ort).Fail):
        session(external(), options)


def test_external_files_in_memory_malformed(ort):
    options = ort.SessionOptions()
    with pytest.raises(RuntimeError, match="equal length"):
        options.add_external_initializers_from_files_in_memory(["a"], [b"x"], [])
    with pytest.raises(TypeError):
        options.add_external_initializers_from_files_in_memory(["a"], ["x"], [1])


def test_files_in_memory_lengths_are_checked():
    with pytest.raises(RuntimeError, match="length 5 does not fit its buffer of 1 bytes"):
        ort_sdk.SessionOptions().add_external_initializers_from_files_in_memory(["a"], [b"x"], [5])


def test_folder_of_external_data(ort, session, tmp_path):
    (tmp_path / "w.bin").write_bytes(b"____" + WEIGHTS.tobytes())
    options = ort.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
    np.testing.assert_array_equal(session(external(), options).run(["y"], {"x": X})[0], X @ WEIGHTS + 1)


def test_cancelled_loading(ort, session):
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(errors(ort).ModelLoadCanceled, match="Graph loading canceled due to user request"):
        session(models.identity(), options)
    options.set_load_cancellation_flag(False)
    session(models.identity(), options)


def test_custom_ops_library(ort):
    with pytest.raises((errors(ort).Fail, errors(ort).NotImplemented)):
        ort.SessionOptions().register_custom_ops_library("/nope.so")


def test_levels_give_the_same_results(ort, session):
    levels = ort.GraphOptimizationLevel
    for level in (levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_BASIC, levels.ORT_ENABLE_EXTENDED, levels.ORT_ENABLE_ALL):
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        np.testing.assert_array_equal(session(models.affine(), options).run(["z"], {"x": X})[0], [[7, 10, 13], [13, 20, 27]])


def test_disabled_optimizers_and_unknown_arguments(session):
    made = session(models.affine(), disabled_optimizers=["ConstantFolding"], enable_fallback=1, whatever=2)
    assert len(made.run(None, {"x": X})) == 2


def test_assignment_info(ort, session):
    with pytest.raises(errors(ort).Fail, match=r"session.record_ep_graph_assignment_info"):
        session(models.affine()).get_provider_graph_assignment_info()
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    info = session(models.affine(), options).get_provider_graph_assignment_info()
    found = sorted((group.ep_name, node.name, node.op_type) for group in info for node in group.get_nodes())
    assert found == [
        ("CPUExecutionProvider", "product", "MatMul"),
        ("CPUExecutionProvider", "rectified", "Relu"),
        ("CPUExecutionProvider", "sum", "Add"),
    ]


def configured(text):
    import onnx

    made = onnx.load_from_string(models.identity())
    made.metadata_props.add(key="ort_config", value=text)
    return made.SerializeToString()


def test_options_from_the_model(ort, session, monkeypatch):
    wanted = {"inter_op_num_threads": 5, "intra_op_num_threads": 2, "graph_optimization_level": 1, "execution_mode": 1}
    source = configured(json.dumps({"session_options": wanted | {"nobody_knows": 3}}))
    assert session(source).get_session_options().inter_op_num_threads == 0
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    got = session(source, options).get_session_options()
    assert {name: int(getattr(got, name)) for name in wanted} == wanted
    assert session(models.identity()).get_session_options().inter_op_num_threads == 0
    for harmless in ("[]", '{"session_options": 3}'):
        session(configured(harmless))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Json stored in the `ort_config` key cannot be parsed"),
        (
            '{"session_options": {"intra_op_num_threads": "a"}}',
            "intra_op_num_threads option in the model file must be",
        ),
        ('{"session_options": {"graph_optimization_level": 50}}', "Unsupported graph_optimization_level value in ORT config: 50"),
    ],
)
def test_malformed_options_from_the_model(session, monkeypatch, text, message):
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    with pytest.raises((RuntimeError, ValueError), match=message):
        session(configured(text))
