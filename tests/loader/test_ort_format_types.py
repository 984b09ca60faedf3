"""Types in files in ORT format: which can be written, and clear refusals of the others before a file is touched."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.api import Fail
from ort_sdk.loader import load_model
from tests.loader.ort_files import convert, quiet_options, run_reference, value
from tests.loader.test_ort_format_writer import run_ours, write

CONSTANTS = ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "BFLOAT16", "FLOAT16", "DOUBLE", "BOOL", "UINT64"]
ONLY_VALUES = ["INT4", "UINT4", "INT2", "UINT2", "FLOAT8E8M0"]
"""Types of values, of which the format has no constants: onnxruntime writes them, and cannot read what it wrote."""
FEEDS = {"x": np.array([0, 1, -1, 2], np.float32)}


def _model(nodes, constants=(), outputs=(("y", TensorProto.FLOAT),)):
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])]
    results = [helper.make_tensor_value_info(name, kind, [4]) for name, kind in outputs]
    graph = helper.make_graph(nodes, "types", inputs, results, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12).SerializeToString()


def _with_constant(kind):
    constant = helper.make_tensor("w", getattr(TensorProto, kind), [4], [0, 1, 1, 0])
    return _model([helper.make_node("Cast", ["w"], ["v"], to=1), helper.make_node("Add", ["x", "v"], ["y"])], [constant])


def _with_value(kind):
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Cast", ["a"], ["v"], to=getattr(TensorProto, kind)),
        helper.make_node("Cast", ["v"], ["y"], to=1),
    ]
    return _model(nodes)


@pytest.mark.parametrize("kind", CONSTANTS)
def test_constants(kind, tmp_path):
    target = write(_with_constant(kind), tmp_path / "m.ort")
    theirs = convert(_with_constant(kind), tmp_path / "theirs.ort")
    expected = FEEDS["x"] + np.array([0, 1, 1, 0])
    for results in (run_reference(target, FEEDS), run_ours(target, FEEDS), run_ours(theirs, FEEDS)):
        np.testing.assert_array_equal(results[0], expected)


@pytest.mark.parametrize("kind", [*ONLY_VALUES, *CONSTANTS[:4], "BFLOAT16"])
def test_values(kind, tmp_path):
    model = _with_value(kind)
    target = write(model, tmp_path / "m.ort")
    expected = onnxruntime.InferenceSession(model, quiet_options()).run(None, FEEDS)
    for results in (run_reference(target, FEEDS), run_ours(target, FEEDS), run_ours(convert(model, tmp_path / "t.ort"), FEEDS)):
        np.testing.assert_array_equal(results[0], expected[0])


@pytest.mark.parametrize("kind", [*ONLY_VALUES, "FLOAT4E2M1"])
def test_constants_without_a_form(kind, tmp_path):
    target = tmp_path / "m.ort"
    target.write_bytes(b"older")
    with pytest.raises(Fail, match=f"tensor 'w' is of {kind.lower()}, which ORT format has no form for"):
        write(_with_constant(kind), target)
    assert target.read_bytes() == b"older"
    assert [file.name for file in tmp_path.iterdir()] == ["m.ort"]


@pytest.mark.parametrize("kind", ONLY_VALUES)
def test_constants_that_onnxruntime_writes_and_cannot_read(kind, tmp_path):
    target = convert(_with_constant(kind), tmp_path / "m.ort")
    with pytest.raises(Exception, match="Unsupported tensor data type"):
        run_reference(target, FEEDS)
    with pytest.raises(Fail, match="Unsupported tensor data type: tensor 'w' has the code"):
        load_model(target)


def test_4_bit_weights_of_products_are_stored_as_bytes(tmp_path):
    """Once the optimizer has made MatMulNBits of them."""
    weight = helper.make_tensor("w", TensorProto.UINT4, [32, 4], [index % 16 for index in range(128)])
    scale = numpy_helper.from_array(np.full((2, 4), 0.25, np.float32), "s")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=16),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "packed", [value("x", (2, 32))], [value("y", (2, 4))], [weight, scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    with pytest.raises(Fail, match="tensor 'w' is of uint4"):
        write(model, tmp_path / "m.ort", level="ORT_ENABLE_BASIC")
    entries = [("session.qdq_matmulnbits_accuracy_level", "1")]
    target = write(model, tmp_path / "m.ort", level="ORT_ENABLE_EXTENDED", entries=entries)
    feeds = {"x": np.random.default_rng(0).random((2, 32), np.float32)}
    expected = onnxruntime.InferenceSession(model, quiet_options()).run(None, feeds)
    for results in (run_reference(target, feeds), run_ours(target, feeds)):
        np.testing.assert_allclose(results[0], expected[0], rtol=1e-5)


def test_sequences(tmp_path):
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["s"], axis=0, keepdims=1),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
    ]
    inputs, outputs = [value("x", ("N", 3))], [value("y", None), helper.make_tensor_sequence_value_info("s", 1, None)]
    graph = helper.make_graph(nodes, "sequences", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    target = write(model, tmp_path / "m.ort")
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    assert load_model(target).graph.outputs[1].type == "seq(tensor(float))"
    for whole, parts in (run_reference(target, feeds), run_ours(target, feeds)):
        np.testing.assert_array_equal(whole, feeds["x"])
        np.testing.assert_array_equal(np.concatenate(parts), feeds["x"])


def test_maps(tmp_path):
    """A sequence of maps, as classifiers make them."""
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_strings=["a", "b", "c"])
    output = helper.make_value_info("y", helper.make_sequence_type_proto(helper.make_map_type_proto(8, _float_tensor())))
    graph = helper.make_graph([node], "maps", [value("x")], [output])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    target = write(model, tmp_path / "m.ort")
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}
    assert load_model(target).graph.outputs[0].type == load_model(convert(model, tmp_path / "t.ort")).graph.outputs[0].type
    for results in (run_reference(target, feeds), run_ours(target, feeds)):
        assert results[0] == [{"a": 0.0, "b": 1.0, "c": 2.0}, {"a": 3.0, "b": 4.0, "c": 5.0}]


def _float_tensor():
    return helper.make_tensor_type_proto(TensorProto.FLOAT, [])


def test_optional_values_have_no_form(tmp_path):
    nodes = [helper.make_node("Optional", ["x"], ["o"]), helper.make_node("OptionalGetElement", ["o"], ["y"])]
    model = _model(nodes)
    with pytest.raises(Fail, match=r"value 'o' is of type optional\(tensor\(float\)\), which ORT format has no form for"):
        write(model, tmp_path / "m.ort")
    assert not list(tmp_path.iterdir())
    assert ort_sdk.InferenceSession(model).run(None, FEEDS)


def test_complex_constants(tmp_path):
    constant = numpy_helper.from_array(np.array([[[1 + 2j], [3 - 1j]]], np.complex64), "w")
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [value("y", (1, 2, 1), 14)], [constant])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    np.testing.assert_array_equal(run_ours(write(model, tmp_path / "m.ort"), {})[0], [[[1 + 2j], [3 - 1j]]])
