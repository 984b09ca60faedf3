"""Optimizations recorded in files in ORT format: onnxruntime's here, ours in onnxruntime, kept, refused, reported."""

from __future__ import annotations

import logging
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import ort_sdk
from ort_sdk.api import Fail, InvalidArgument
from ort_sdk.formats.ort.slots import GraphSlot, OptimizationSlot, OptimizationsSlot, OptimizedNodesSlot, OptimizerSlot
from ort_sdk.loader import load_model
from tests.loader.ort_files import Editor, quiet_options
from tests.loader.recordable_models import MODELS, ModelBuilder, feeds_of
from tests.models.test_models import FEEDS, QUANTIZED_FEEDS

ROOT = Path(__file__).resolve().parents[2]
SAVE = ("optimization.minimal_build_optimizations", "save")
APPLY = ("optimization.minimal_build_optimizations", "apply")
REPLAY = ("session.enable_saved_runtime_optimizations", "1")
OFF = ("optimization.disable_specified_optimizers", "QDQSelectorActionTransformer")
UNLIKE_ORT = {"matmul", "matmul_float", "matmul_columns", "matmul_columns_float", "split"}
"""Onnxruntime does not record what its actions make of these, and cannot replay its own records."""


def theirs(source, *entries, target=None, level="ORT_ENABLE_ALL"):
    options = quiet_options(level=level)
    if target is not None:
        options.optimized_model_filepath = str(target)
    for key, value in entries:
        options.add_session_config_entry(key, value)
    return onnxruntime.InferenceSession(
        source if isinstance(source, bytes) else str(source), options, providers=["CPUExecutionProvider"]
    )


def ours(source, *entries, target=None, level="ORT_ENABLE_ALL"):
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, level)
    if target is not None:
        options.optimized_model_filepath = str(target)
    for key, value in entries:
        options.add_session_config_entry(key, value)
    return ort_sdk.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def records(path):
    """Every record of a file, nodes told by their names."""
    model = load_model(path)
    return sorted(
        (
            each.optimizer,
            each.action,
            each.target.op_type,
            tuple(node and node.op_type for node in each.inputs),
            tuple(node and node.op_type for node in each.outputs),
            each.variadic_inputs,
            each.variadic_outputs,
            each.produced,
        )
        for graph in model.graph.walk()
        for each in graph.runtime_optimizations
    )


def operators(path):
    return Counter(node.op_type for graph in load_model(path).graph.walk() for node in graph.nodes)


def check(actual, expected):
    """Equal, but for one step of a quantized value, and 8-bit activations of products by weights in blocks."""
    for value, wanted in zip(actual, expected, strict=True):
        assert value.dtype == wanted.dtype
        if value.dtype == np.uint8:
            assert np.abs(value.astype(int) - wanted.astype(int)).max() <= 1
        else:
            np.testing.assert_allclose(value, wanted, rtol=1e-3, atol=2e-2)


@pytest.fixture(params=MODELS)
def case(request):
    session = theirs(MODELS[request.param], level="ORT_DISABLE_ALL")
    feeds = feeds_of(session)
    return request.param, MODELS[request.param], feeds, session.run(None, feeds)


def test_records_of_onnxruntime(case, tmp_path):
    name, model, feeds, expected = case
    path, kept, made = (tmp_path / f"{part}.ort" for part in ("theirs", "kept", "made"))
    theirs(model, SAVE, target=path)
    found = records(path)
    assert found
    check(ours(path, target=kept, level="ORT_ENABLE_BASIC").run(None, feeds), expected)
    assert records(kept) == found
    check(ours(path, REPLAY, APPLY, target=made).run(None, feeds), expected)
    assert not records(made)
    assert operators(made) != operators(path)
    produced = {op_id.split(":")[1] for record in found for op_id in record[-1]}
    assert produced <= operators(made).keys()
    if name not in UNLIKE_ORT:
        check(theirs(kept, REPLAY).run(None, feeds), expected)


def test_our_records(case, tmp_path):
    name, model, feeds, expected = case
    path, reference, made = (tmp_path / f"{part}.ort" for part in ("ours", "reference", "made"))
    check(ours(model, SAVE, target=path).run(None, feeds), expected)
    theirs(model, SAVE, target=reference)
    found = records(path)
    comparable = slice(0, -1) if name in UNLIKE_ORT else slice(None)
    assert [record[comparable] for record in found] == [record[comparable] for record in records(reference)]
    check(theirs(path).run(None, feeds), expected)
    check(theirs(path, REPLAY, target=made).run(None, feeds), expected)
    produced = {op_id.split(":")[1] for record in found for op_id in record[-1]}
    assert produced <= operators(made).keys()
    check(ours(path, REPLAY).run(None, feeds), expected)


def test_records_are_made_without_onnx_and_protobuf(tmp_path):
    theirs(MODELS["conv_bias"], SAVE, target=tmp_path / "m.ort")
    code = (
        "import sys\n"
        "for name in ('onnx', 'google', 'google.protobuf', 'flatbuffers'): sys.modules[name] = None\n"
        "import numpy as np, ort_sdk\n"
        "options = ort_sdk.SessionOptions()\n"
        "options.add_session_config_entry('session.enable_saved_runtime_optimizations', '1')\n"
        "options.add_session_config_entry('session.record_ep_graph_assignment_info', '1')\n"
        "session = ort_sdk.InferenceSession(sys.argv[1], options)\n"
        "session.run(None, {'x': np.zeros((1, 3, 6, 6), np.uint8)})\n"
        "print(*(node.op_type for group in session.get_provider_graph_assignment_info() for node in group.get_nodes()))\n"
    )
    command = [sys.executable, "-c", code, tmp_path / "m.ort"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["QLinearConv"]


@pytest.mark.parametrize("name", ["mobilenet_opset9", "mobilenet_qdq_opset13"])
@pytest.mark.parametrize("writer", [theirs, ours])
def test_real_models(name, writer, tmp_path):
    source = ROOT / "tests" / "models" / "data" / f"{name}.onnx"
    writer(source, SAVE, target=tmp_path / "m.ort")
    assert records(tmp_path / "m.ort")
    ours(tmp_path / "m.ort", REPLAY, APPLY, target=tmp_path / "made.ort")
    assert not records(tmp_path / "made.ort")
    for feeds in (FEEDS | QUANTIZED_FEEDS)[name]:
        expected = theirs(source, level="ORT_DISABLE_ALL").run(None, feeds)
        for make in (theirs, ours):
            for entries in ((), (REPLAY,)):
                for actual, wanted in zip(make(tmp_path / "m.ort", *entries).run(None, feeds), expected, strict=True):
                    np.testing.assert_allclose(actual, wanted, rtol=1e-3, atol=1e-3)


def test_records_are_made_only_from_the_extended_level_on(tmp_path):
    path = tmp_path / "conv.ort"
    theirs(MODELS["conv"], SAVE, target=path)
    for level, is_made in (
        ("ORT_DISABLE_ALL", False),
        ("ORT_ENABLE_BASIC", False),
        ("ORT_ENABLE_EXTENDED", True),
        ("ORT_ENABLE_ALL", True),
    ):
        target = tmp_path / f"{level}.ort"
        ours(path, REPLAY, target=target, level=level)
        assert bool(operators(target)["QLinearConv"]) == is_made
        assert bool(records(target)) != is_made


def test_nothing_is_recorded_below_the_extended_level(tmp_path):
    ours(MODELS["conv"], SAVE, target=tmp_path / "m.ort", level="ORT_ENABLE_BASIC")
    assert not records(tmp_path / "m.ort")


def test_recording_twice_records_once(tmp_path):
    ours(MODELS["conv"], SAVE, target=tmp_path / "first.ort")
    ours(tmp_path / "first.ort", SAVE, target=tmp_path / "second.ort")
    assert records(tmp_path / "second.ort") == records(tmp_path / "first.ort")


def test_apply_makes_only_what_a_minimal_build_can(tmp_path):
    builder = ModelBuilder()
    conv = builder.add("Conv", ["x", builder.constant(np.ones((4, 3, 3, 3), np.float32))])
    product = builder.add("Mul", [builder.add("Sigmoid", [builder.add("Relu", [conv])]), builder.constant(np.float32(2))])
    wide = builder.add("MatMul", [product, builder.constant(np.ones((4, 4), np.float32))])
    builder.add("Mul", [wide, builder.constant(np.float32(0.5))], "y")
    model = builder.model([("x", 1, (1, 3, 6, 6))], [("y", 1)])
    for entries, expected in (((), {"FusedConv", "FusedMatMul"}), ((APPLY,), {"FusedConv", "MatMul"})):
        target = tmp_path / f"{len(entries)}.ort"
        ours(model, *entries, target=target)
        assert {"FusedConv", "FusedMatMul", "MatMul"} & operators(target).keys() == expected


def test_disabled_passes_neither_record_nor_replay(tmp_path):
    ours(MODELS["conv"], SAVE, OFF, target=tmp_path / "none.ort")
    assert not records(tmp_path / "none.ort")
    ours(MODELS["conv"], SAVE, target=tmp_path / "m.ort")
    ours(tmp_path / "m.ort", REPLAY, OFF, target=tmp_path / "kept.ort")
    assert records(tmp_path / "kept.ort") == records(tmp_path / "m.ort")


@pytest.mark.parametrize(
    ("value", "target", "message"),
    [
        ("save", "m.onnx", "'save' is only valid when saving an ORT format model"),
        ("save", None, "'save' is only valid when saving an ORT format model"),
        ("Save", "m.ort", "Invalid value for optimization.minimal_build_optimizations: 'Save'"),
        ("all", None, "Invalid value for optimization.minimal_build_optimizations: 'all'"),
    ],
)
def test_refused_settings(value, target, message, tmp_path):
    entry = (SAVE[0], value)
    for make, error in ((ours, InvalidArgument), (theirs, onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument)):
        with pytest.raises(error) as caught:
            make(MODELS["conv"], entry, target=target and tmp_path / target)
        assert SAVE[0] in str(caught.value)
        if make is ours:
            assert message in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_negative_scales_turn_the_order_round(tmp_path):
    builder = ModelBuilder()
    value = builder.dequantize("x", scale=-0.02)
    builder.quantize(builder.add("MaxPool", [value], kernel_shape=[2, 2]), scale=-0.02)
    model = builder.model([("x", 2, (1, 3, 6, 6))], [("y", 2)])
    feeds = feeds_of(theirs(model))
    expected = theirs(model, level="ORT_DISABLE_ALL").run(None, feeds)
    np.testing.assert_array_equal(ours(model).run(None, feeds)[0], expected[0])
    ours(model, SAVE, target=tmp_path / "m.ort")
    assert not records(tmp_path / "m.ort")


# -- damaged and unknown records


class RecordEditor(Editor):
    """A file with one record."""

    def __init__(self, content):
        super().__init__(content)
        self.optimizations = self.graph().table(GraphSlot.RUNTIME_OPTIMIZATIONS, "RuntimeOptimizations")
        (self.optimizer,) = self.optimizations.tables(OptimizationsSlot.OPTIMIZERS, "RuntimeOptimizationRecordContainerEntry")
        (self.record,) = self.optimizer.tables(OptimizerSlot.RECORDS, "RuntimeOptimizationRecord")
        self.listed = self.record.table(OptimizationSlot.NODES, "NodesToOptimizeIndices")

    def set_index(self, position, index):
        struct.pack_into("<I", self.content, self.vector(self.listed, OptimizedNodesSlot.NODE_INDICES) + 4 + 4 * position, index)

    def set_text(self, table, slot, text):
        self.point(self.place(table, slot), self.add_text(text))


@pytest.fixture
def editor(tmp_path):
    theirs(MODELS["conv_bias"], SAVE, target=tmp_path / "made.ort")
    return RecordEditor((tmp_path / "made.ort").read_bytes())


DAMAGES = {
    "index out of range": (lambda file: file.set_index(0, 77), r"indices \[77\]; the graph has 6 node slots"),
    "largest index": (lambda file: file.set_index(0, 2**32 - 2), "names nodes of indices"),
    "target missing": (lambda file: file.set_index(3, 2**32 - 1), "one for its target, which must be a node"),
    "fewer inputs": (
        lambda file: file.set(file.listed, OptimizedNodesSlot.NUM_INPUTS, "<I", 2),
        "has 5 node indices; it needs 2",
    ),
    "many inputs": (lambda file: file.set(file.listed, OptimizedNodesSlot.NUM_INPUTS, "<I", 2**32 - 1), "has 5 node indices"),
    "no outputs": (lambda file: file.remove(file.listed, OptimizedNodesSlot.NUM_OUTPUTS), "and 0 for outputs"),
    "no optimizer": (lambda file: file.set_text(file.optimizer, OptimizerSlot.NAME, b""), "one without a name"),
    "no op id": (
        lambda file: struct.pack_into(
            "<I",
            file.content,
            file.vector(file.record, OptimizationSlot.PRODUCED_OP_IDS) + 4,
            file.add_text(b"QLinearConv") - file.vector(file.record, OptimizationSlot.PRODUCED_OP_IDS) - 4,
        ),
        "Invalid OpIdentifier string: QLinearConv",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_records(name, editor):
    damage, message = DAMAGES[name]
    damage(editor)
    with pytest.raises(Fail, match=message):
        load_model(editor.result())


def test_record_of_nodes_that_are_gone(editor, caplog):
    editor.set_index(0, 5)
    with caplog.at_level(logging.WARNING, "ort_sdk"):
        model = load_model(editor.result())
    assert not model.graph.runtime_optimizations
    assert "runtime optimization 'Conv' of QDQSelectorActionTransformer is left out" in caplog.text


def test_unknown_optimizer_is_kept_and_reported(editor, caplog, tmp_path):
    editor.set_text(editor.optimizer, OptimizerSlot.NAME, b"FutureOptimizer")
    with caplog.at_level(logging.WARNING, "ort_sdk"):
        ours(editor.result(), REPLAY, OFF, target=tmp_path / "kept.ort")
    assert "runtime optimization 'Conv' of FutureOptimizer is not made" in caplog.text
    assert [record[:2] for record in records(tmp_path / "kept.ort")] == [("FutureOptimizer", "Conv")]
    theirs(editor.result(), REPLAY)
    theirs(tmp_path / "kept.ort", REPLAY)


def test_unknown_action_fails_only_when_it_is_to_be_made(editor, tmp_path):
    editor.set_text(editor.record, OptimizationSlot.ACTION_ID, b"Future")
    content = editor.result()
    for make, error in ((ours, Fail), (theirs, onnxruntime.capi.onnxruntime_pybind11_state.Fail)):
        make(content)
        with pytest.raises(error, match="Missing action Future for transformer QDQSelectorActionTransformer"):
            make(content, REPLAY)
    ours(content, target=tmp_path / "kept.ort", level="ORT_DISABLE_ALL")
    assert [record[1] for record in records(tmp_path / "kept.ort")] == ["Future"]


@pytest.mark.parametrize("swap", [(0, 1), (3, 1), (4, 0)])
def test_records_are_not_trusted(swap, editor):
    """Nodes at wrong positions make no wrong results: either the record's nodes are a match, or nothing happens."""
    session = theirs(MODELS["conv_bias"], level="ORT_DISABLE_ALL")
    feeds = feeds_of(session)
    first, second = swap
    editor.set_index(first, second)
    editor.set_index(second, first)
    check(ours(editor.result(), REPLAY, APPLY).run(None, feeds), session.run(None, feeds))


def test_record_of_another_product_is_not_made(editor, caplog, tmp_path):
    vector = editor.vector(editor.record, OptimizationSlot.PRODUCED_OP_IDS) + 4
    struct.pack_into("<I", editor.content, vector, editor.add_text(b":QLinearConv:9") - vector)
    with caplog.at_level(logging.WARNING, "ort_sdk"):
        ours(editor.result(), REPLAY, ("optimization.minimal_build_optimizations", "save"), target=tmp_path / "kept.ort")
    assert "is not made at ai.onnx::Conv(11)" in caplog.text
    assert len(records(tmp_path / "kept.ort")) == 1
