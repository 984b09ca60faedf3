"""ORT-format file → Model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

from ort_sdk.api import Fail, InvalidOrtModel
from ort_sdk.formats.files.byte_source import ByteSource
from ort_sdk.formats.onnx.reader.graph_proto import sort_graph
from ort_sdk.formats.ort.detection import FILE_IDENTIFIER
from ort_sdk.formats.ort.slots import GraphSlot, ModelSlot, OpsetSlot, SessionSlot, StringPairSlot, ValueInfoSlot
from ort_sdk.formats.ort.version import FIRST_VERSION_WITH_RESOLVER, UNSET_MODEL_VERSION, read_version
from ort_sdk.formats.versions import newest_imports, parse_opset_imports
from ort_sdk.graph import Graph, Model
from ort_sdk.graph.constants import lift_constants
from ort_sdk.graph.operator_schemas import OperatorSchemas
from ort_sdk.graph.type_strings import TypeStrings

from .flatbuffer import FlatBuffer, Table
from .graphs import GraphReader
from .resolver import check_consistent, check_has_schemas, check_resolved, read_resolver
from .tensors import TensorReader
from .types import dimension_denotations

__all__ = ["read_ort_model", "read_ort_type_strings"]


def read_ort_model(source: ByteSource, schemas: OperatorSchemas) -> Model:
    """Read an ORT-format file. Weights are ranges of it; all checks are done, none is read.

    Args:
        source: the whole file.
        schemas: of the operators the model may have; what the file says of an operator counts more.

    Returns:
        The model: nodes in topological order, of the versions the file says, on no provider.

    Raises:
        InvalidOrtModel: the file is damaged, incomplete, of an unsupported version, or holds what the format has no form for.
        InvalidGraph: the graph breaks a rule of ONNX.
    """
    with _blaming_the_file():
        return _read(source, schemas)


@contextlib.contextmanager
def _blaming_the_file() -> Iterator[None]:
    """Whatever fails in here fails because of the file."""
    try:
        yield
    except Fail as error:
        raise InvalidOrtModel(error.text) from error


def _read(source: ByteSource, schemas: OperatorSchemas) -> Model:
    root, version = _open(source)
    table = root.table(SessionSlot.MODEL, "Model")
    if table is None:
        raise Fail("Missing Model. Invalid ORT format model.")
    resolver = _read_resolver(root, version)
    model, formal_inputs = _read_model(table, TensorReader(source), schemas)
    if resolver is None:
        check_has_schemas(model.graph, version)
    else:
        check_resolved(model.graph, resolver)
        check_consistent(resolver, formal_inputs)
        model.type_strings = resolver
    sort_graph(model.graph)
    lift_constants(model.graph)
    return model


def read_ort_type_strings(source: ByteSource) -> dict[str, TypeStrings]:
    """What an ORT-format file says of its operators, by op id; the rest of the file is not read.

    Raises:
        InvalidOrtModel: the file is damaged, or of a version that does not describe its operators.
    """
    with _blaming_the_file():
        root, version = _open(source)
        found = _read_resolver(root, version)
    if found is None:
        raise InvalidOrtModel(
            f"The ORT format model version [{version}] does not describe its operators; versions from "
            f"{FIRST_VERSION_WITH_RESOLVER} on do. Convert the ONNX model again with ONNX Runtime 1.13 or later."
        )
    return found


def _open(source: ByteSource) -> tuple[Table, int]:
    """Root and version of a file."""
    root = FlatBuffer(source.array.data).root(FILE_IDENTIFIER)
    return root, read_version(root.text(SessionSlot.ORT_VERSION))


def _read_resolver(root: Table, version: int) -> dict[str, TypeStrings] | None:
    """What the file says of its operators; None for old files, whose operators' schemas say it."""
    if version < FIRST_VERSION_WITH_RESOLVER:
        return None
    table = root.table(SessionSlot.KERNEL_TYPE_STR_RESOLVER, "KernelTypeStrResolver")
    if table is None:
        raise Fail("Missing KernelTypeStrResolver. Invalid ORT format model.")
    return read_resolver(table)


def _read_model(table: Table, tensors: TensorReader, schemas: OperatorSchemas) -> tuple[Model, dict[str, int]]:
    """The model, and how many formal inputs it says that each operator has."""
    graph_table = table.table(ModelSlot.GRAPH, "Graph")
    if graph_table is None:
        raise Fail("Graph is null. Invalid ORT format model.")
    ir_version = table.i64(ModelSlot.IR_VERSION)
    imports = _read_imports(table)
    reader = GraphReader(tensors, ir_version, schemas)
    graph = reader.read(graph_table)
    graph.doc_string = table.text(ModelSlot.GRAPH_DOC_STRING) or ""
    model_version = table.i64(ModelSlot.MODEL_VERSION)
    model = Model(
        graph=graph,
        opset_imports=imports,
        ir_version=ir_version,
        producer_name=table.text(ModelSlot.PRODUCER_NAME) or "",
        producer_version=table.text(ModelSlot.PRODUCER_VERSION) or "",
        domain=table.text(ModelSlot.DOMAIN) or "",
        model_version=None if model_version == UNSET_MODEL_VERSION else model_version,
        doc_string=table.text(ModelSlot.DOC_STRING) or "",
        metadata=_read_metadata(table),
        input_denotations=_input_denotations(graph, graph_table),
        schemas=schemas,
    )
    return model, reader.formal_inputs


def _read_imports(table: Table) -> dict[str, int]:
    if not table.has(ModelSlot.OPSET_IMPORT):
        raise Fail("Model must have opset imports. Invalid ORT format model.")
    entries = []
    for entry in table.tables(ModelSlot.OPSET_IMPORT, "OperatorSetId"):
        domain = entry.text(OpsetSlot.DOMAIN)
        if domain is None:
            raise Fail("An opset import has no domain. Invalid ORT format model.")
        entries.append(SimpleNamespace(domain=domain, version=entry.i64(OpsetSlot.VERSION)))
    return newest_imports(parse_opset_imports(entries, may_be_newer=True))


def _read_metadata(table: Table) -> dict[str, str]:
    metadata = {}
    for entry in table.tables(ModelSlot.METADATA_PROPS, "StringStringEntry"):
        key, value = entry.text(StringPairSlot.KEY), entry.text(StringPairSlot.VALUE)
        if key is None or value is None:
            raise Fail("A metadata property has no key or no value. Invalid ORT format model.")
        metadata[key] = value
    return metadata


def _input_denotations(graph: Graph, table: Table) -> dict[str, tuple[str, ...]]:
    inputs = {argument.name for argument in graph.inputs}
    values = table.tables(GraphSlot.NODE_ARGS, "ValueInfo")
    named = ((value.text(ValueInfoSlot.NAME) or "", value) for value in values)
    found = ((name, dimension_denotations(value)) for name, value in named if name in inputs)
    return {name: words for name, words in found if any(words)}
