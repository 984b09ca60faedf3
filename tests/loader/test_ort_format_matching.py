"""Kernels of models in ORT format are matched by what their files say: files of onnxruntime, and damaged ones."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import CPU_DEVICE, ExecutionProvider, Fail, KernelRegistry, NoKernelError, ProviderHooks, hookimpl
from ort_sdk.formats.ort.slots import (
    ArgumentSlot,
    ModelSlot,
    NodeSlot,
    OperatorSlot,
    OpsetSlot,
    ResolverSlot,
    SessionSlot,
    TypeStringSlot,
)
from ort_sdk.graph.shape_inference import infer_shapes
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.kernels import KernelTypeStrResolver, type_str_resolver
from ort_sdk.loader import load_model
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.compare import assert_same
from tests.loader.ort_files import SMALL_FEEDS, Editor, as_bytes, convert, run_reference, small_model, small_result
from tests.loader.test_ort_format import CASES, NODE_CASES, ROOT
from tests.models.test_models import FEEDS, QUANTIZED_FEEDS


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    return convert(as_bytes(small_model()), tmp_path_factory.mktemp("ort") / "made.ort").read_bytes()


@pytest.fixture
def editor(content):
    return Editor(content)


def resolver_table(editor):
    return editor.root.table(SessionSlot.KERNEL_TYPE_STR_RESOLVER, "KernelTypeStrResolver")


def entry(editor, name):
    entries = resolver_table(editor).tables(ResolverSlot.OPERATORS, "OpIdKernelTypeStrArgsEntry")
    return next(each for each in entries if each.text(OperatorSlot.OP_ID) == name)


def type_string(editor, name, operator):
    entries = entry(editor, operator).tables(OperatorSlot.TYPE_STRINGS, "KernelTypeStrArgsEntry")
    return next(each for each in entries if each.text(TypeStringSlot.NAME) == name)


def arguments(editor, name, operator):
    return type_string(editor, name, operator).tables(TypeStringSlot.ARGUMENTS, "ArgTypeAndIndex")


def node(editor, op_type):
    return next(node for node in editor.nodes() if node.text(NodeSlot.OP_TYPE) == op_type)


def overwrite(editor, table, slot, text: bytes):
    """Put a text of the same length into a field's place."""
    at = editor.vector(table, slot)
    assert struct.unpack_from("<I", editor.content, at)[0] == len(text)
    editor.content[at + 4 : at + 4 + len(text)] = text


def renamed_relu(editor, op_id: bytes, version: int):
    """Let the file's Relu be of another version."""
    overwrite(editor, entry(editor, ":Relu:14"), OperatorSlot.OP_ID, op_id)
    editor.set(node(editor, "Relu"), NodeSlot.SINCE_VERSION, "<i", version)


@pytest.fixture
def consulted(monkeypatch):
    """Which tables gave the entries that kernels were matched by."""
    found = {}
    own = KernelTypeStrResolver.type_strings

    def watch(self, operator):
        result = own(self, operator)
        if result is not None and not isinstance(operator, str):
            found[f"{operator.domain}:{operator.op_type}:{operator.since_version}"] = self.source(operator)
        return result

    monkeypatch.setattr(type_str_resolver.KernelTypeStrResolver, "type_strings", watch)
    return found


# -- files of onnxruntime


@pytest.mark.parametrize("name", CASES)
def test_the_file_drives_the_matching(name, tmp_path, consulted):
    """Each operator of the file is matched by the file's entry; what else is looked up comes from the built-in table."""
    case = NODE_CASES[name]
    path = convert(case.model_bytes(), tmp_path / "case.ort")
    described = set(KernelTypeStrResolver.from_ort_format(path).op_ids())
    session = ort_sdk.InferenceSession(path)
    assert {operator for operator, source in consulted.items() if source == f"file '{path}'"} == described & consulted.keys()
    assert set(consulted.values()) <= {f"file '{path}'", "operator schemas"}
    nodes = [each for graph in load_model(path).graph.walk() for each in graph.nodes]
    assert not nodes or described & consulted.keys()
    for inputs, outputs in case.data_sets():
        results = session.run(None, dict(zip(case.feed_names(), inputs, strict=True)))
        for actual, wanted in zip(results, outputs, strict=True):
            assert_same(actual, wanted, rtol=case.rtol, atol=case.atol, what="output")


def test_files_of_onnxruntime_agree_with_the_table(tmp_path):
    """Of operators of ONNX's own domains, onnxruntime says what our table says."""
    schemas = KernelTypeStrResolver.from_schemas()
    for name in CASES:
        found = KernelTypeStrResolver.from_ort_format(convert(NODE_CASES[name].model_bytes(), tmp_path / "case.ort"))
        for operator in found.op_ids():
            ours = {key: sorted(each) for key, each in schemas.type_strings(operator).items()}
            assert {key: sorted(each) for key, each in found.type_strings(operator).items()} == ours, operator


@pytest.mark.parametrize("name", [*FEEDS, *QUANTIZED_FEEDS])
def test_operators_that_passes_insert_are_matched_by_the_built_in_table(name, tmp_path, consulted):
    path = convert(str(ROOT / "tests" / "models" / "data" / f"{name}.onnx"), tmp_path / "model.ort")
    session = ort_sdk.InferenceSession(path)
    described = set(KernelTypeStrResolver.from_ort_format(path).op_ids())
    placed = {f"{row.domain}:{row.op_type}:{row.since_version}" for row in session.placements()}
    assert placed <= consulted.keys()
    assert {consulted[operator] for operator in placed - described} <= {"operator schemas"}
    assert {consulted[operator] for operator in placed & described} <= {f"file '{path}'"}
    feeds = (FEEDS | QUANTIZED_FEEDS)[name][0]
    for actual, expected in zip(session.run(None, feeds), run_reference(path, feeds), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)


def test_old_versions_describe_no_operators(editor):
    at = editor.vector(editor.root, SessionSlot.ORT_VERSION)
    editor.content[at + 4 : at + 5] = b"4"
    with pytest.raises(Fail, match=r"version \[4\] does not describe its operators; versions from 5 on do"):
        KernelTypeStrResolver.from_ort_format(editor.result())


# -- what our table lacks


class NewRelu(ProviderHooks):
    """Has a Relu for versions that the table does not know, and one in a domain of its own."""

    name = "NewReluExecutionProvider"

    @hookimpl
    def get_supported_devices(self):
        return [CPU_DEVICE]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return ExecutionProvider(self.name, device, provider_options)

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        registry = KernelRegistry(self.name)
        registry.kernel("Relu", 14, {"T": ["tensor(float)"]}, end_version=99)(lambda _info: lambda x: np.maximum(x, 0) + 100)
        registry.kernel("Relu", 4, {"T": ["tensor(float)"]}, domain="mine")(lambda _info: lambda x: np.maximum(x, 0) + 200)
        return registry


@pytest.fixture
def new_relu():
    handle = plugin_manager().register(NewRelu)
    yield handle.name
    plugin_manager().unregister(handle.name)


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_a_version_newer_than_the_table(editor, new_relu, level):
    renamed_relu(editor, b":Relu:99", 99)
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, level)
    session = ort_sdk.InferenceSession(editor.result(), options, providers=[new_relu])
    (row,) = [row for row in session.placements() if row.op_type == "Relu"]
    assert (row.provider, row.since_version) == (new_relu, 99)
    np.testing.assert_allclose(session.run(None, SMALL_FEEDS)[0], small_result() + 100)


def test_a_version_newer_than_the_table_of_a_type_without_kernel(editor, new_relu):
    renamed_relu(editor, b":Relu:99", 99)
    with pytest.raises(NoKernelError, match=r"Relu\(99\).*CPUExecutionProvider: .*registered for since_version 14, node has 99"):
        ort_sdk.InferenceSession(editor.result(), providers=["CPUExecutionProvider"])


def test_a_domain_that_the_table_does_not_know(editor, new_relu):
    editor.point(editor.place(node(editor, "Relu"), NodeSlot.DOMAIN), editor.add_text(b"mine"))
    editor.set(node(editor, "Relu"), NodeSlot.SINCE_VERSION, "<i", 4)
    editor.point(editor.place(entry(editor, ":Relu:14"), OperatorSlot.OP_ID), editor.add_text(b"mine:Relu:4"))
    session = ort_sdk.InferenceSession(editor.result(), providers=[new_relu])
    np.testing.assert_allclose(session.run(None, SMALL_FEEDS)[0], small_result() + 200)


def test_no_rule_for_older_versions_is_applied_to_newer_ones(editor):
    """Nothing but the file tells the type and the shape of what a newer version makes."""
    renamed_relu(editor, b":Relu:99", 99)
    model = load_model(editor.result())
    relu = next(each for each in model.graph.nodes if each.op_type == "Relu")
    del model.graph.values[relu.outputs[0]]
    infer_types(model.graph, model.schemas)
    infer_shapes(model.graph)
    assert model.graph.node_arg(relu.outputs[0]).type is None
    assert model.graph.node_arg(relu.outputs[0]).shape is None


def test_a_newer_opset_is_no_obstacle(editor):
    imports = editor.model().tables(ModelSlot.OPSET_IMPORT, "OperatorSetId")
    onnx_import = next(each for each in imports if each.text(OpsetSlot.DOMAIN) == "")
    editor.set(onnx_import, OpsetSlot.VERSION, "<q", 1000)
    session = ort_sdk.InferenceSession(editor.result())
    np.testing.assert_allclose(session.run(None, SMALL_FEEDS)[0], small_result())


# -- damaged resolvers


def refused(editor, error, words):
    with pytest.raises(error, match=words):
        ort_sdk.InferenceSession(editor.result())


def test_an_operator_is_missing(editor):
    overwrite(editor, entry(editor, ":Relu:14"), OperatorSlot.OP_ID, b":Gelu:14")
    refused(editor, Fail, "Failed to find op_id: :Relu:14, which ai.onnx::Relu.14., node 'rectify' needs")


def test_an_operator_of_a_body_is_missing(editor):
    overwrite(editor, entry(editor, ":Sub:14"), OperatorSlot.OP_ID, b":Div:14")
    refused(editor, Fail, "Failed to find op_id: :Sub:14, which ai.onnx::Sub.14., node 'subtracts' needs")


@pytest.mark.parametrize(
    ("table", "slot", "words"),
    [
        (resolver_table, ResolverSlot.OPERATORS, "Failed to find op_id"),
        (lambda editor: entry(editor, ":Relu:14"), OperatorSlot.TYPE_STRINGS, ":Relu:14 has no kernel type strings"),
        (lambda editor: type_string(editor, "T", ":Relu:14"), TypeStringSlot.ARGUMENTS, "T of op id :Relu:14 covers no argument"),
    ],
)
def test_empty_entries(editor, table, slot, words):
    editor.remove(table(editor), slot)
    refused(editor, Fail, words)


def test_an_index_beyond_the_formal_inputs(editor):
    editor.set(arguments(editor, "T", ":MatMul:13")[1], ArgumentSlot.INDEX, "<I", 7)
    refused(editor, Fail, "T of op id :MatMul:13 covers input 7, and its nodes have 2 formal inputs")


def test_an_argument_that_is_covered_twice(editor):
    editor.set(arguments(editor, "T", ":MatMul:13")[1], ArgumentSlot.INDEX, "<I", 0)
    refused(editor, Fail, "T of op id :MatMul:13 covers input 0, which is covered already: an argument has one type")


def test_a_type_constraint_covers_what_onnx_does_not_say(editor):
    """B covers the condition of an If, V its outputs."""
    overwrite(editor, type_string(editor, "B", ":If:16"), TypeStringSlot.NAME, b"W")
    overwrite(editor, type_string(editor, "V", ":If:16"), TypeStringSlot.NAME, b"B")
    refused(editor, Fail, "B of op id :If:16 covers output 0; by the operator's schema it covers input 0")


def test_a_type_constraint_of_another_name(editor):
    """All operators of the file share the text."""
    overwrite(editor, type_string(editor, "T", ":Relu:14"), TypeStringSlot.NAME, b"Q")
    words = "its type constraint T cannot be resolved: the model has no type string T for :Add:14, it has Q; operator schemas: T"
    refused(editor, NoKernelError, words)
