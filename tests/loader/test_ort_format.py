"""ORT-format files written by onnxruntime: they load to the same model as the ONNX file and give the same results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.api import Fail, InvalidArgument, InvalidProtobuf, NoSuchFile
from ort_sdk.formats.files.mapped_tensor import MappedTensor
from ort_sdk.loader import load_model
from ort_sdk.testing.cases import load_cases
from tests.loader.ort_files import SMALL_FEEDS, as_bytes, convert, quiet_options, run_reference, small_model, small_result
from tests.models.test_models import FEEDS, QUANTIZED_FEEDS

ROOT = Path(__file__).resolve().parents[2]
CASES = [
    "test_add_bcast",
    "test_relu",
    "test_gemm_default_matrix_bias",
    "test_conv_with_strides_padding",
    "test_maxpool_2d_pads",
    "test_averagepool_2d_default",
    "test_batchnorm_epsilon",
    "test_softmax_axis_1",
    "test_concat_3d_axis_1",
    "test_split_variable_parts_2d_opset18",
    "test_gather_1",
    "test_scatternd",
    "test_slice",
    "test_transpose_all_permutations_3",
    "test_reshape_reordered_all_dims",
    "test_unsqueeze_two_axes",
    "test_squeeze",
    "test_reflect_pad",
    "test_resize_upsample_scales_nearest",
    "test_clip_example",
    "test_where_example",
    "test_argmax_default_axis_example",
    "test_reduce_sum_default_axes_keepdims_example",
    "test_lstm_defaults",
    "test_gru_defaults",
    "test_simple_rnn_defaults",
    "test_loop11",
    "test_loop13_seq",
    "test_if",
    "test_if_seq",
    "test_scan9_sum",
    "test_sequence_insert_at_back",
    "test_sequence_map_identity_1_sequence",
    "test_qlinearconv",
    "test_dynamicquantizelinear",
    "test_matmulinteger",
    "test_layer_normalization_4d_axis1",
    "test_constantofshape_float_ones",
    "test_eyelike_with_dtype",
    "test_nonmaxsuppression_suppress_by_IOU",
    "test_tfidfvectorizer_tf_batch_onlybigrams_skip0",
    "test_string_concat",
    "test_ai_onnx_ml_label_encoder_string_int",
    "test_ai_onnx_ml_array_feature_extractor",
    "test_identity_sequence",
    "test_gelu_default_1",
    "test_bitwise_and_i32_2d",
    "test_hardswish",
    "test_group_normalization_epsilon",
]
NODE_CASES = {case.name: case for case in load_cases("node")}


@pytest.mark.parametrize("name", [*FEEDS, *QUANTIZED_FEEDS])
@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_models(name, level, tmp_path):
    target = convert(str(ROOT / "tests" / "models" / "data" / f"{name}.onnx"), tmp_path / "model.ort")
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, level)
    session = ort_sdk.InferenceSession(target, options)
    for feeds in (FEEDS | QUANTIZED_FEEDS)[name][:2]:
        for actual, expected in zip(session.run(None, feeds), run_reference(target, feeds), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


def test_model_optimized_by_onnxruntime(tmp_path):
    target = convert(str(ROOT / "examples" / "digits" / "digits.onnx"), tmp_path / "digits.ort", level="ORT_ENABLE_EXTENDED")
    feeds = {"image": np.random.default_rng(0).random((2, 1, 8, 8), np.float32)}
    (actual,) = ort_sdk.InferenceSession(target).run(None, feeds)
    np.testing.assert_allclose(actual, run_reference(target, feeds)[0], rtol=1e-5, atol=1e-6)


def test_model_is_that_of_the_onnx_file(tmp_path):
    model = load_model(convert(as_bytes(small_model()), tmp_path / "small.ort"))
    original = load_model(as_bytes(small_model()))
    for name in ("producer_name", "model_version", "doc_string", "metadata", "ir_version"):
        assert getattr(model, name) == getattr(original, name), name
    assert model.graph.doc_string == "graph words"
    assert (model.graph.inputs, model.graph.outputs) == (original.graph.inputs, original.graph.outputs)
    assert original.opset_imports.items() <= model.opset_imports.items()
    choices = [made.graph.nodes[1].attributes for made in (model, original)]
    pairs = [
        (model.graph, original.graph),
        *(tuple(choice[name] for choice in choices) for name in ("then_branch", "else_branch")),
    ]
    for ours, theirs in pairs:
        for node, other in zip(ours.nodes, theirs.nodes, strict=True):
            assert (node.op_type, node.inputs, node.outputs, node.since_version) == (
                other.op_type,
                other.inputs,
                other.outputs,
                other.since_version,
            )
            assert sorted(node.implicit_inputs) == sorted(other.implicit_inputs)
            assert node.execution_provider == ""
    branch = next(graph for graph in model.graph.walk() if graph.parent is not None)
    assert "h" not in branch.values
    assert branch.node_arg("h").type == "tensor(float)"


def test_types_shapes_and_constants(tmp_path):
    """Strings, every storable element type, sparse weights, overridable weights, unknown and symbolic sizes."""
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("", TensorProto.INT64, [2], [1, 4]),
        [2, 3],
    )
    numbers = [
        numpy_helper.from_array(np.array([[0, 1], [2, 3]]).astype(kind), f"n_{kind}")
        for kind in ("float32", "uint8", "int8", "uint16", "int16", "int32", "int64", "bool", "float16", "float64", "uint32")
    ]
    texts = numpy_helper.from_array(np.array(["a", "ü", ""], dtype=object), "texts")
    scalar = numpy_helper.from_array(np.array(2.5, np.float32), "scalar")
    nodes = [
        helper.make_node("Add", ["x", "s"], ["h"]),
        helper.make_node("Mul", ["h", "scalar"], ["y"]),
        helper.make_node("Identity", ["texts"], ["words"]),
        *(helper.make_node("Identity", [tensor.name], [f"{tensor.name}_out"]) for tensor in numbers),
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for node in nodes[1:] for name in node.output]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, "K"]), helper.make_tensor_value_info("scalar", 1, [])]
    graph = helper.make_graph(nodes, "constants", inputs, outputs, [scalar, texts, *numbers], sparse_initializer=[sparse])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    for info in made.graph.output:
        info.CopyFrom(helper.make_tensor_value_info(info.name, 8 if info.name == "words" else _kind_of(info.name, numbers), None))
    target = convert(made.SerializeToString(), tmp_path / "constants.ort")
    model = load_model(target)
    assert model.graph.inputs[0].shape == (None, "K")
    assert model.graph.is_overridable("scalar")
    assert model.graph.initializers["texts"].numpy().tolist() == ["a", "ü", ""]
    np.testing.assert_array_equal(model.graph.initializers["s"].numpy(), [[0, 1, 0], [0, 2, 0]])
    session = ort_sdk.InferenceSession(target)
    feeds = {"x": np.ones((2, 3), np.float32)}
    for actual, expected in zip(session.run(None, feeds), run_reference(target, feeds), strict=True):
        np.testing.assert_array_equal(actual, expected)
    assert session.run(["y"], feeds | {"scalar": np.array(0, np.float32)})[0].max() == 0


def _kind_of(name, tensors):
    return next((tensor.data_type for tensor in tensors if name == f"{tensor.name}_out"), TensorProto.FLOAT)


def test_weights_stay_in_the_file(tmp_path):
    path = convert(as_bytes(small_model()), tmp_path / "small.ort")
    content = path.read_bytes()
    for source in (path, content):
        tensor = load_model(source).graph.initializers["w"]
        assert isinstance(tensor, MappedTensor)
        assert tensor.packed().base is not None
        np.testing.assert_array_equal(tensor.numpy(), np.arange(9, dtype=np.float32).reshape(3, 3))
    whole = np.frombuffer(content, dtype=np.uint8)
    kept = load_model(content).graph.initializers["w"].packed()
    assert 0 <= kept.ctypes.data - whole.ctypes.data < len(whole)


# -- detection


@pytest.fixture
def content(tmp_path):
    return convert(as_bytes(small_model()), tmp_path / "made.ort").read_bytes()


@pytest.mark.parametrize(
    ("name", "model_format"), [("m.ort", ""), ("m.ORT", ""), ("m.OrT", ""), ("m.onnx", "ORT"), ("m", "ORT"), ("m.ort", "ORT")]
)
def test_files_read_as_ort_format(name, model_format, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    options = ort_sdk.SessionOptions()
    if model_format:
        options.add_session_config_entry("session.load_model_format", model_format)
    session = ort_sdk.InferenceSession(str(tmp_path / name), options)
    np.testing.assert_allclose(session.run(None, SMALL_FEEDS)[0], small_result())
    assert session.get_modelmeta().custom_metadata_map == {"answer": "42", "empty": ""}


def test_format_is_decided_by_extension_or_by_the_bytes_identifier(content, tmp_path):
    assert load_model(content).type_strings
    (tmp_path / "m.onnx").write_bytes(content)
    (tmp_path / "m.ort").write_bytes(as_bytes(small_model()))
    with pytest.raises(InvalidProtobuf):
        load_model(tmp_path / "m.onnx")
    with pytest.raises(Fail, match="ORT model verification failed"):
        load_model(tmp_path / "m.ort")
    assert not load_model(tmp_path / "m.ort", model_format="ONNX").type_strings
    with pytest.raises(InvalidProtobuf):
        load_model(content, model_format="ONNX")
    with pytest.raises(InvalidArgument, match=r"session\.load_model_format='TFLITE'"):
        load_model(content, model_format="TFLITE")
    with pytest.raises(NoSuchFile):
        load_model(tmp_path / "none.ort")


def test_values_for_external_weights_are_refused(content):
    with pytest.raises(InvalidArgument, match=r"\['w'\]"):
        load_model(content, external_initializers={"w": load_model(content).graph.initializers["w"]})


def test_neither_onnx_nor_protobuf_is_imported(tmp_path):
    convert(str(ROOT / "tests" / "models" / "data" / "control_flow_opset13.onnx"), tmp_path / "m.ort")
    code = (
        "import sys\n"
        "for name in ('onnx', 'google', 'google.protobuf'): sys.modules[name] = None\n"
        "import numpy as np, ort_sdk\n"
        "session = ort_sdk.InferenceSession(sys.argv[1])\n"
        "outputs = session.run(None, {'x': np.ones((3, 4), np.float32), 'count': np.array(4)})\n"
        "assert outputs\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "m.ort"], check=True, timeout=120)


def test_onnxruntime_agrees_on_the_small_model(content):
    import onnxruntime

    session = onnxruntime.InferenceSession(content, quiet_options())
    np.testing.assert_allclose(session.run(None, SMALL_FEEDS)[0], small_result())
