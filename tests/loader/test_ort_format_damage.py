"""Damaged files in ORT format: each of the format's integrity checks, and seeded mutations."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import Fail, InvalidGraph, OrtSdkError
from ort_sdk.formats.ort.detection import FILE_IDENTIFIER
from ort_sdk.formats.ort.slots import (
    ArgumentSlot,
    AttributeSlot,
    DimensionSlot,
    DimensionValueSlot,
    GraphSlot,
    ModelSlot,
    NodeEdgeSlot,
    NodeSlot,
    OperatorSlot,
    OpsetSlot,
    ResolverSlot,
    SessionSlot,
    ShapeSlot,
    StringPairSlot,
    TensorSlot,
    TensorTypeSlot,
    TypeInfoSlot,
    TypeStringSlot,
    ValueInfoSlot,
)
from ort_sdk.formats.ort.writer.builder import FileBuilder, i32, offset, u32
from ort_sdk.loader import load_model
from tests.loader.ort_files import SMALL_FEEDS, Editor, as_bytes, convert, run_reference, small_model, small_result
from tests.models.test_models import FEEDS

DATA = Path(__file__).resolve().parents[1] / "models" / "data"
MUTATIONS = 500


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    return convert(as_bytes(small_model()), tmp_path_factory.mktemp("ort") / "made.ort").read_bytes()


@pytest.fixture
def editor(content):
    return Editor(content)


def weight(editor):
    return editor.graph().tables(GraphSlot.INITIALIZERS, "Tensor")[0]


def values(editor):
    return editor.graph().tables(GraphSlot.NODE_ARGS, "ValueInfo")


def node(editor, op_type):
    return next(node for node in editor.nodes() if node.text(NodeSlot.OP_TYPE) == op_type)


def type_of(editor, name):
    return next(value for value in values(editor) if value.text(ValueInfoSlot.NAME) == name).table(ValueInfoSlot.TYPE, "TypeInfo")


def operators(editor):
    return editor.root.table(SessionSlot.KERNEL_TYPE_STR_RESOLVER, "KernelTypeStrResolver").tables(
        ResolverSlot.OPERATORS, "OpIdKernelTypeStrArgsEntry"
    )


def type_strings(editor):
    return next(found for each in operators(editor) if len(found := each.tables(OperatorSlot.TYPE_STRINGS, "Entry")) > 0)


def edge_ends(editor):
    """Position of the first edge end that there is."""
    for entry in editor.graph().tables(GraphSlot.NODE_EDGES, "NodeEdge"):
        at = editor.vector(entry, NodeEdgeSlot.OUTPUT_EDGES)
        if struct.unpack_from("<I", editor.content, at)[0]:
            return at + 4
    raise AssertionError("no edges")


def refused(editor, error, words):
    with pytest.raises(error, match=words):
        load_model(editor.result(), model_format="ORT")


# -- version


@pytest.mark.parametrize("text", ["5", "6"])
def test_supported_versions(text, editor):
    at = editor.vector(editor.root, SessionSlot.ORT_VERSION)
    editor.content[at + 4 : at + 5] = text.encode()
    assert load_model(editor.result()).type_strings


@pytest.mark.parametrize("text", ["1", "4"])
def test_old_versions_load_by_schemas(text, editor):
    at = editor.vector(editor.root, SessionSlot.ORT_VERSION)
    editor.content[at + 4 : at + 5] = text.encode()
    editor.remove(editor.root, SessionSlot.KERNEL_TYPE_STR_RESOLVER)
    session = ort_sdk.InferenceSession(editor.result())
    np.testing.assert_allclose(session.run(None, SMALL_FEEDS)[0], small_result())


def test_old_version_of_an_unknown_operator(editor):
    at = editor.vector(editor.root, SessionSlot.ORT_VERSION)
    editor.content[at + 4 : at + 5] = b"4"
    editor.point(editor.place(node(editor, "Relu"), NodeSlot.DOMAIN), editor.add_text(b"nowhere"))
    refused(editor, Fail, r"version \[4\] does not describe its operators, and nowhere::Relu\(14\), node 'rectify' is unknown")


@pytest.mark.parametrize("text", ["7", "9"])
def test_newer_versions(text, editor):
    at = editor.vector(editor.root, SessionSlot.ORT_VERSION)
    editor.content[at + 4 : at + 5] = text.encode()
    refused(editor, Fail, rf"The ORT format model version \[{text}\] is not supported in this build; supported are 1 to 6")


@pytest.mark.parametrize("text", [b"0", b"x", b"-", b" ", b"\xff"])
def test_versions_that_are_no_numbers(text, editor):
    at = editor.vector(editor.root, SessionSlot.ORT_VERSION)
    editor.content[at + 4 : at + 5] = text
    refused(editor, Fail, "is not a decimal number from 1 to 6")


def test_empty_version(editor):
    at = editor.vector(editor.root, SessionSlot.ORT_VERSION)
    editor.content[at : at + 5] = bytes(5)
    refused(editor, Fail, r"version \[\] is not a decimal number")


# -- missing parts

MISSING = [
    (lambda editor: (editor.root, SessionSlot.ORT_VERSION), "Serialized version info is null"),
    (lambda editor: (editor.root, SessionSlot.MODEL), "Missing Model"),
    (lambda editor: (editor.root, SessionSlot.KERNEL_TYPE_STR_RESOLVER), "Missing KernelTypeStrResolver"),
    (lambda editor: (editor.model(), ModelSlot.GRAPH), "Graph is null"),
    (lambda editor: (editor.model(), ModelSlot.OPSET_IMPORT), "Model must have opset imports"),
    (
        lambda editor: (editor.model().tables(ModelSlot.OPSET_IMPORT, "OperatorSetId")[0], OpsetSlot.DOMAIN),
        "opset import has no domain",
    ),
    (
        lambda editor: (editor.model().tables(ModelSlot.METADATA_PROPS, "StringStringEntry")[0], StringPairSlot.KEY),
        "metadata property has no key",
    ),
    (lambda editor: (weight(editor), TensorSlot.NAME), "Missing name of an initializer"),
    (lambda editor: (weight(editor), TensorSlot.DIMS), "Missing dimensions for initializer"),
    (lambda editor: (weight(editor), TensorSlot.RAW_DATA), "Missing raw data for initializer"),
    (lambda editor: (weight(editor), TensorSlot.DATA_TYPE), "Unsupported tensor data type"),
    (lambda editor: (values(editor)[0], ValueInfoSlot.NAME), "Missing name of a NodeArg"),
    (lambda editor: (values(editor)[0], ValueInfoSlot.TYPE), "Null type info"),
    (lambda editor: (type_of(editor, "x"), TypeInfoSlot.VALUE), "Null value type info"),
    (lambda editor: (node(editor, "Relu"), NodeSlot.OP_TYPE), "has no op_type"),
    (lambda editor: (node(editor, "Relu"), NodeSlot.INPUT_ARG_COUNTS), "Missing input_arg_counts"),
    (lambda editor: (node(editor, "If").tables(NodeSlot.ATTRIBUTES, "Attribute")[0], AttributeSlot.NAME), "without a name"),
    (lambda editor: (node(editor, "If").tables(NodeSlot.ATTRIBUTES, "Attribute")[0], AttributeSlot.G), "Null graph"),
    (lambda editor: (node(editor, "If"), NodeSlot.IMPLICIT_INPUTS), "arguments that are not listed"),
    (lambda editor: (editor.graph(), GraphSlot.MAX_NODE_INDEX), "max node index is smaller than the required node slot count"),
    (lambda editor: (editor.graph(), GraphSlot.NODE_ARGS), "not among the graph's NodeArgs"),
    (lambda editor: (operators(editor)[0], OperatorSlot.OP_ID), "Invalid OpIdentifier string: None"),
    (lambda editor: (operators(editor)[0], OperatorSlot.TYPE_STRINGS), "has no kernel type strings"),
    (lambda editor: (type_strings(editor)[0], TypeStringSlot.NAME), "has no name"),
    (lambda editor: (type_strings(editor)[0], TypeStringSlot.ARGUMENTS), "covers no argument"),
]


@pytest.mark.parametrize(("field", "words"), MISSING, ids=[words for _, words in MISSING])
def test_missing_parts(field, words, editor):
    editor.remove(*field(editor))
    refused(editor, Fail, words)


# -- wrong numbers

NUMBERS = [
    (lambda e: e.vector(weight(e), TensorSlot.DIMS) + 4, "<q", 4, "raw data size mismatch"),
    (lambda e: e.vector(weight(e), TensorSlot.DIMS) + 4, "<q", 2**40, "raw data size mismatch"),
    (lambda e: e.vector(weight(e), TensorSlot.DIMS) + 4, "<q", -3, "none negative"),
    (lambda e: e.vector(weight(e), TensorSlot.DIMS) + 4, "<q", 2**62, "more elements than can be addressed"),
    (lambda e: e.place(weight(e), TensorSlot.DATA_TYPE), "<i", 22, "Unsupported tensor data type"),
    (lambda e: e.place(weight(e), TensorSlot.DATA_TYPE), "<i", -1, "Unsupported tensor data type"),
    (lambda e: e.place(weight(e), TensorSlot.DATA_TYPE), "<i", 6, "Data in initializer 'w' is tensor"),
    (lambda e: e.place(weight(e), TensorSlot.DATA_TYPE), "<i", 8, "has 0 strings; it needs 9"),
    (lambda e: e.vector(weight(e), TensorSlot.RAW_DATA), "<I", 2**31, "verification failed"),
    (lambda e: e.place(e.graph(), GraphSlot.MAX_NODE_INDEX), "<I", 1, "max node index is smaller"),
    (lambda e: e.place(node(e, "Relu"), NodeSlot.INDEX), "<I", 10**6, "Node index 1000000 is out of range"),
    (lambda e: e.place(node(e, "Relu"), NodeSlot.INDEX), "<I", 1, "Duplicate node index: 1"),
    (lambda e: e.vector(node(e, "Relu"), NodeSlot.INPUT_ARG_COUNTS) + 4, "<i", 2, "mismatch number of explicit inputs"),
    (lambda e: e.vector(node(e, "Relu"), NodeSlot.INPUT_ARG_COUNTS) + 4, "<i", -1, "mismatch number of explicit inputs"),
    (lambda e: e.place(node(e, "Relu"), NodeSlot.SINCE_VERSION), "<i", 13, "Failed to find op_id|No Op registered"),
    (edge_ends, "<I", 77, "ends at a node index without a node"),
    (edge_ends, "<I", 2**32 - 1, "ends at a node index without a node"),
    (lambda e: edge_ends(e) + 4, "<i", 5, "from output 5"),
    (lambda e: edge_ends(e) + 8, "<i", -1, "to input -1"),
    (lambda e: e.place(type_of(e, "x"), TypeInfoSlot.VALUE_TYPE), "<B", 9, "has the code 9"),
    (
        lambda e: e.place(type_of(e, "x").table(TypeInfoSlot.VALUE, "T"), TensorTypeSlot.ELEM_TYPE),
        "<i",
        99,
        "element type code 99",
    ),
    (
        lambda e: e.place(node(e, "If").tables(NodeSlot.ATTRIBUTES, "Attribute")[0], AttributeSlot.TYPE),
        "<i",
        10,
        "Unsupported attribute type 10",
    ),
    (
        lambda e: e.place(type_strings(e)[0].tables(TypeStringSlot.ARGUMENTS, "A")[-1], ArgumentSlot.KIND),
        "<b",
        2,
        "is of kind 2",
    ),
]


@pytest.mark.parametrize(("place", "form", "number", "words"), NUMBERS, ids=[f"{row[3]}-{row[2]}" for row in NUMBERS])
def test_wrong_numbers(place, form, number, words, editor):
    struct.pack_into(form, editor.content, place(editor), number)
    refused(editor, OrtSdkError, words)


def test_shape_of_initializer_disagrees_with_its_node_arg(editor):
    shape = type_of(editor, "w").table(TypeInfoSlot.VALUE, "T").table(TensorTypeSlot.SHAPE, "S")
    size = shape.tables(ShapeSlot.DIM, "D")[0].table(DimensionSlot.VALUE, "V")
    editor.set(size, DimensionValueSlot.DIM_VALUE, "<q", 5)
    refused(editor, InvalidGraph, "Shape of initializer w does not match")


# -- things there twice, or in the wrong place


def test_duplicate_node_arg(editor):
    first, second = sorted(values(editor), key=lambda value: value._at)[:2]
    target = max(editor.vector(value, ValueInfoSlot.NAME) for value in (first, second))
    for value in (first, second):
        editor.point(editor.place(value, ValueInfoSlot.NAME), target)
    refused(editor, Fail, "Duplicate NodeArg name")


def test_duplicate_op_id(editor):
    entries = operators(editor)[:2]
    target = max(editor.vector(entry, OperatorSlot.OP_ID) for entry in entries)
    for entry in entries:
        editor.point(editor.place(entry, OperatorSlot.OP_ID), target)
    refused(editor, Fail, "Duplicate entry for op id")


def test_duplicate_kernel_type_string(editor):
    found = [each.tables(OperatorSlot.TYPE_STRINGS, "Entry") for each in operators(editor)]
    entries = next(each for each in found if len(each) > 1)
    target = max(editor.vector(entry, TypeStringSlot.NAME) for entry in entries)
    for entry in entries:
        editor.point(editor.place(entry, TypeStringSlot.NAME), target)
    refused(editor, Fail, "Duplicate entry for kernel type str")


@pytest.mark.parametrize("slot", [GraphSlot.INPUTS, GraphSlot.OUTPUTS])
def test_graph_value_without_node_arg(slot, editor):
    at = editor.vector(editor.graph(), slot) + 4
    editor.point(at, editor.add_text(b"nothing"))
    refused(editor, Fail, "is not among the graph's NodeArgs")


def test_dangling_edge(editor):
    entry = max(editor.graph().tables(GraphSlot.NODE_EDGES, "NodeEdge"), key=lambda entry: entry.u32(NodeEdgeSlot.NODE_INDEX))
    editor.set(entry, NodeEdgeSlot.NODE_INDEX, "<I", 500)
    refused(editor, Fail, "Dangling node edge")


def test_operator_missing_from_the_resolver(editor):
    entry = next(each for each in operators(editor) if each.text(OperatorSlot.OP_ID) == ":Relu:14")
    at = editor.vector(entry, OperatorSlot.OP_ID) + 4
    editor.content[at : at + 8] = b":Gelu:14"
    refused(editor, Fail, "Failed to find op_id: :Relu:14")


@pytest.mark.parametrize("text", [b"::Relu14", b":Relu:xx", b"Relu:014", b"::::::::"])
def test_op_ids_that_are_none(text, editor):
    entry = next(each for each in operators(editor) if each.text(OperatorSlot.OP_ID) == ":Relu:14")
    at = editor.vector(entry, OperatorSlot.OP_ID) + 4
    editor.content[at : at + 8] = text
    refused(editor, Fail, "Invalid OpIdentifier string")


# -- offsets


@pytest.mark.parametrize("length", [0, 4, 8, 12, 100, -8])
def test_truncated(length, content):
    with pytest.raises(Fail, match="ORT model verification failed"):
        load_model(content[:length], model_format="ORT")


def test_other_identifier(content):
    with pytest.raises(Fail, match="instead of the identifier"):
        load_model(content[:4] + b"ODTC" + content[8:], model_format="ORT")


def nested(levels):
    """A file in which each graph's one node has the next graph as its body twice, by offsets to the same bytes."""
    builder = FileBuilder(1024)
    graph = builder.table(GraphSlot)
    for _ in range(levels):
        kind = i32(AttributeSlot.TYPE, 5)
        names = [builder.text(name) for name in ("a", "b")]
        bodies = [
            builder.table(AttributeSlot, offset(AttributeSlot.NAME, name), kind, offset(AttributeSlot.G, graph)) for name in names
        ]
        fields = (
            offset(NodeSlot.DOMAIN, builder.text("mine")),
            offset(NodeSlot.OP_TYPE, builder.text("Twice")),
            offset(NodeSlot.ATTRIBUTES, builder.references(bodies)),
            offset(NodeSlot.INPUT_ARG_COUNTS, builder.numbers([0], "<i4")),
        )
        nodes = builder.references([builder.table(NodeSlot, *fields)])
        graph = builder.table(GraphSlot, offset(GraphSlot.NODES, nodes), u32(GraphSlot.MAX_NODE_INDEX, 1))
    imports = offset(ModelSlot.OPSET_IMPORT, builder.references([]))
    model = builder.table(ModelSlot, imports, offset(ModelSlot.GRAPH, graph))
    arguments = builder.references([builder.table(ArgumentSlot)])
    fields = (offset(TypeStringSlot.NAME, builder.text("T")), offset(TypeStringSlot.ARGUMENTS, arguments))
    strings = builder.references([builder.table(TypeStringSlot, *fields)])
    fields = (offset(OperatorSlot.OP_ID, builder.text("mine:Twice:0")), offset(OperatorSlot.TYPE_STRINGS, strings))
    resolver = builder.table(
        ResolverSlot, offset(ResolverSlot.OPERATORS, builder.references([builder.table(OperatorSlot, *fields)]))
    )
    root = builder.table(
        SessionSlot,
        offset(SessionSlot.ORT_VERSION, builder.text("6")),
        offset(SessionSlot.MODEL, model),
        offset(SessionSlot.KERNEL_TYPE_STR_RESOLVER, resolver),
    )
    return bytes(builder.finish(root, FILE_IDENTIFIER))


def test_shared_bodies():
    assert len(list(load_model(nested(3)).graph.walk())) == 15


@pytest.mark.parametrize(("levels", "words"), [(19, "parts overlap"), (40, "64 nested tables")])
def test_bodies_that_share_their_bytes_do_not_multiply(levels, words):
    content = nested(levels)
    assert len(content) < 10_000
    with pytest.raises(Fail, match=f"ORT model verification failed.*{words}"):
        load_model(content)


# -- mutations


def mutated(content, seed):
    """Bits flipped, the end cut off, an offset, a count or an index in a table of fields set to something else."""
    rng = random.Random(seed)
    data = bytearray(content)
    kind = rng.randrange(5)
    if kind < 2:
        for _ in range(rng.choice([1, 1, 1, 4])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        del data[rng.randrange(len(data)) :]
    elif kind == 3:
        number = rng.choice([0, 1, 4, 8, 2**31 - 1, 2**31, 2**32 - 1, rng.randrange(len(data))])
        struct.pack_into("<I", data, 4 * rng.randrange(len(data) // 4), number)
    else:
        struct.pack_into("<H", data, 2 * rng.randrange(len(data) // 2), rng.choice([0, 1, 4, 65535, rng.randrange(200)]))
    return bytes(data)


@pytest.mark.parametrize("name", ["control_flow_opset13", "gru_opset12"])
def test_mutations_of_models_are_refused_or_load(name, tmp_path):
    content = convert(str(DATA / f"{name}.onnx"), tmp_path / "made.ort").read_bytes()
    refusals = sum(_is_refused(mutated(content, seed)) for seed in range(MUTATIONS))
    assert MUTATIONS // 4 < refusals < MUTATIONS
    assert run_reference(tmp_path / "made.ort", FEEDS[name][0])


def _is_refused(content):
    try:
        load_model(content, model_format="ORT")
    except OrtSdkError:
        return True
    return False


def test_mutations_of_the_small_model_are_refused_or_run(content):
    """Sessions are refused or run; those that still take the same feeds give floats."""
    results = 0
    for seed in range(MUTATIONS // 2):
        try:
            session = ort_sdk.InferenceSession(mutated(content, seed))
            (result,) = session.run(None, SMALL_FEEDS)
        except OrtSdkError:
            continue
        results += 1
        assert result.dtype == np.float32
    assert results > MUTATIONS // 20
