"""Files we write in ORT format: onnxruntime loads them, and so do we, with equal results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.api import Fail
from ort_sdk.formats.ort.reader.flatbuffer import FlatBuffer
from ort_sdk.formats.ort.slots import AttributeSlot, GraphSlot, ModelSlot, NodeEdgeSlot, NodeSlot, SessionSlot, TensorSlot
from ort_sdk.formats.ort.writer.tensors import WEIGHT_ALIGNMENT
from ort_sdk.loader import load_model
from tests.loader.ort_files import (
    SMALL_FEEDS,
    Editor,
    as_bytes,
    convert,
    quiet_options,
    run_reference,
    small_model,
    small_result,
    value,
)
from tests.models.test_models import FEEDS, QUANTIZED_FEEDS

ROOT = Path(__file__).resolve().parents[2]


def write(model, target, *, level="ORT_DISABLE_ALL", entries=()):
    """Let a session of ours write its model."""
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(target)
    for key, text in entries:
        options.add_session_config_entry(key, text)
    ort_sdk.InferenceSession(model, options)
    return target


def run_ours(path, feeds):
    return ort_sdk.InferenceSession(path).run(None, feeds)


@pytest.mark.parametrize("name", [*FEEDS, *QUANTIZED_FEEDS])
@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_models(name, level, tmp_path):
    source = ROOT / "tests" / "models" / "data" / f"{name}.onnx"
    target = write(source, tmp_path / "model.ort", level=level)
    feeds = (FEEDS | QUANTIZED_FEEDS)[name][0]
    expected = run_reference(source, feeds)
    for results in (run_reference(target, feeds), run_ours(target, feeds)):
        for actual, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-3, atol=1e-3)


def test_written_again(tmp_path):
    """A file of onnxruntime's, read and written, is read by onnxruntime."""
    first = convert(as_bytes(small_model()), tmp_path / "first.ort")
    second = write(first, tmp_path / "second.ort")
    third = write(second, tmp_path / "third.ort")
    for target in (second, third):
        np.testing.assert_allclose(run_reference(target, SMALL_FEEDS)[0], small_result())
        np.testing.assert_allclose(run_ours(target, SMALL_FEEDS)[0], small_result())
    assert load_model(second).type_strings == load_model(first).type_strings
    assert second.read_bytes() == third.read_bytes()


def test_what_onnxruntime_writes_we_write(tmp_path):
    """Type strings, edges, argument counts, attributes at their defaults and implicit inputs are those of onnxruntime."""
    theirs = Editor(convert(as_bytes(small_model()), tmp_path / "theirs.ort").read_bytes())
    ours = Editor(write(as_bytes(small_model()), tmp_path / "ours.ort").read_bytes())
    assert ours.root.text(SessionSlot.ORT_VERSION) == "6"
    for mine, other in zip(ours.nodes(), theirs.nodes(), strict=True):
        for slot in (NodeSlot.OP_TYPE, NodeSlot.NAME, NodeSlot.DOMAIN):
            assert mine.text(slot) == other.text(slot)
        assert mine.numbers(NodeSlot.INPUT_ARG_COUNTS, "<i4") == other.numbers(NodeSlot.INPUT_ARG_COUNTS, "<i4")
        assert sorted(mine.texts(NodeSlot.IMPLICIT_INPUTS)) == sorted(other.texts(NodeSlot.IMPLICIT_INPUTS))
        assert mine.i32(NodeSlot.SINCE_VERSION) == other.i32(NodeSlot.SINCE_VERSION)
    edges = [
        [len(entry.numbers(slot, "V12")) for entry in editor.graph().tables(GraphSlot.NODE_EDGES, "E")]
        for editor in (ours, theirs)
        for slot in (NodeEdgeSlot.INPUT_EDGES, NodeEdgeSlot.OUTPUT_EDGES)
    ]
    assert edges[:2] == edges[2:]
    metadata = onnxruntime.InferenceSession(str(tmp_path / "ours.ort"), quiet_options()).get_modelmeta()
    assert (metadata.producer_name, metadata.version, metadata.description) == ("maker", 7, "model words")
    assert metadata.custom_metadata_map == {"answer": "42", "empty": ""}


def test_defaults_are_spelt_out(tmp_path):
    nodes = [helper.make_node("Gather", ["x", "i"], ["h"]), helper.make_node("Gemm", ["h", "w"], ["y"])]
    constants = [
        numpy_helper.from_array(np.array([0, 1]), "i"),
        numpy_helper.from_array(np.ones((3, 2), np.float32), "w"),
    ]
    graph = helper.make_graph(nodes, "defaults", [value("x")], [value("y", (2, 2))], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    target = write(as_bytes(made), tmp_path / "defaults.ort")
    gather, gemm = Editor(target.read_bytes()).nodes()
    found = {each.text(AttributeSlot.NAME): each for node in (gather, gemm) for each in node.tables(NodeSlot.ATTRIBUTES, "A")}
    assert found.keys() == {"axis", "alpha", "beta", "transA", "transB"}
    assert found["alpha"].f32(AttributeSlot.F) == 1
    assert gemm.numbers(NodeSlot.INPUT_ARG_COUNTS, "<i4") == [1, 1, 0]
    np.testing.assert_array_equal(run_reference(target, {"x": np.ones((2, 3), np.float32)})[0], np.full((2, 2), 3))


def test_weights_are_aligned(tmp_path):
    content = write(ROOT / "examples" / "digits" / "digits.onnx", tmp_path / "digits.ort").read_bytes()
    tensors = FlatBuffer(memoryview(content)).root(b"ORTM").table(SessionSlot.MODEL, "M").table(ModelSlot.GRAPH, "G")
    offsets = [tensor.vector(TensorSlot.RAW_DATA, 1)[0] for tensor in tensors.tables(GraphSlot.INITIALIZERS, "T")]
    assert offsets
    assert all(offset % WEIGHT_ALIGNMENT == 0 for offset in offsets)


def test_constants_of_every_kind(tmp_path):
    positions = helper.make_tensor("", TensorProto.INT64, [2], [1, 4])
    values = helper.make_tensor("", TensorProto.FLOAT, [2], [1.0, 2.0])
    sparse = helper.make_sparse_tensor(values, positions, [2, 3])
    named = helper.make_sparse_tensor(helper.make_tensor("s", TensorProto.FLOAT, [2], [5.0, 6.0]), positions, [2, 3])
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=sparse),
        helper.make_node("Add", ["x", "c"], ["h"]),
        helper.make_node("Add", ["h", "s"], ["y"]),
        helper.make_node("Identity", ["texts"], ["words"]),
    ]
    texts = numpy_helper.from_array(np.array([["a", "ü", ""]], dtype=object), "texts")
    outputs = [value("y"), value("words", (1, 3), TensorProto.STRING)]
    graph = helper.make_graph(nodes, "constants", [value("x")], outputs, [texts], sparse_initializer=[named])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    target = write(made.SerializeToString(), tmp_path / "constants.ort")
    feeds = {"x": np.zeros((2, 3), np.float32)}
    for results in (run_reference(target, feeds), run_ours(target, feeds)):
        np.testing.assert_array_equal(results[0], [[0, 6, 0], [0, 8, 0]])
        assert results[1].tolist() == [["a", "ü", ""]]


# -- settings


def test_format_of_the_saved_model(tmp_path):
    model = as_bytes(small_model())
    for name, entries, is_ort in (
        ("a.ort", (), True),
        ("a.ORT", (), True),
        ("a.onnx", (("session.save_model_format", "ORT"),), True),
        ("b.onnx", (), False),
        ("b.ort", (("session.save_model_format", "ONNX"),), False),
    ):
        content = write(model, tmp_path / name, entries=entries).read_bytes()
        assert (content[4:8] == b"ORTM") == is_ort, name
    assert onnx.load(tmp_path / "b.ort").graph.node


def test_external_files_are_refused(tmp_path):
    entries = [("session.optimized_model_external_initializers_file_name", "weights.bin")]
    with pytest.raises(ValueError, match="a model in ORT format holds its weights"):
        write(as_bytes(small_model()), tmp_path / "m.ort", entries=entries)
    assert not list(tmp_path.iterdir())


def test_what_the_format_cannot_hold(tmp_path):
    packed = helper.make_tensor("w", TensorProto.INT4, [2, 3], [0, 1, 2, 3, 4, 5])
    scale = numpy_helper.from_array(np.array(1, np.float32), "scale")
    node = helper.make_node("DequantizeLinear", ["w", "scale"], ["d"])
    graph = helper.make_graph(
        [node, helper.make_node("Add", ["x", "d"], ["y"])], "g", [value("x")], [value("y")], [packed, scale]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with pytest.raises(Fail, match="tensor 'w' is of int4, which ORT format has no form for"):
        write(as_bytes(made), tmp_path / "m.ort")
    kept = tmp_path / "kept.ort"
    kept.write_bytes(b"older")
    with pytest.raises(Fail):
        write(as_bytes(made), kept)
    assert kept.read_bytes() == b"older"
    assert [file.name for file in tmp_path.iterdir()] == ["kept.ort"]


def test_command(tmp_path, capsys):
    from ort_sdk.cli import main

    source = str(ROOT / "examples" / "digits" / "digits.onnx")
    assert main(["convert", source, str(tmp_path / "digits.ort")]) == 0
    assert "ORT format" in capsys.readouterr().out
    assert main(["convert", str(tmp_path / "digits.ort"), str(tmp_path / "again.onnx"), "--level", "none", "--json"]) == 0
    assert main(["convert", source, str(tmp_path / "digits.bin")]) == 2
    assert main(["convert", str(tmp_path / "digits.ort"), str(tmp_path / "digits.ort")]) == 2
    feeds = {"image": np.random.default_rng(0).random((2, 1, 8, 8), np.float32)}
    for name in ("digits.ort", "again.onnx"):
        np.testing.assert_allclose(
            run_reference(tmp_path / name, feeds)[0], run_reference(source, feeds)[0], rtol=1e-5, atol=1e-6
        )
