"""Model → file in ORT format, all weights inside."""

from __future__ import annotations

from pathlib import Path

from ort_sdk.api import Fail
from ort_sdk.formats.files.unfinished_file import locked_folder, remove_leftovers, write_whole
from ort_sdk.formats.ort.detection import FILE_IDENTIFIER
from ort_sdk.formats.ort.slots import ModelSlot, OpsetSlot, SessionSlot, StringPairSlot
from ort_sdk.formats.ort.version import CURRENT_VERSION, UNSET_MODEL_VERSION
from ort_sdk.graph import Graph, Model

from .builder import FileBuilder, i64, offset
from .graphs import with_lifted_constants, write_graph
from .resolver import write_resolver
from .tensors import WEIGHT_ALIGNMENT

__all__ = ["serialize_ort_model", "write_ort_model"]

MAX_BYTES = 2**31 - 1
FALLBACK_IR_VERSION = 8
_BYTES_PER_NODE = 1024
_SPARE_BYTES = 64 << 10


def write_ort_model(model: Model, path: Path) -> None:
    """Write a model. The file appears whole, by renaming, or not at all.

    Raises:
        Fail: it would exceed 2 GiB, or the format has no form for something in it.
        OSError: the file system refuses.
    """
    content = serialize_ort_model(model)
    with locked_folder(path.parent):
        write_whole(path, content)
        remove_leftovers(path.parent, path.name)


def serialize_ort_model(model: Model) -> memoryview:
    """The model as bytes: types, edges and type strings complete, attributes at their defaults spelt out.

    Raises:
        Fail: it would exceed 2 GiB, or the format has no form for something in it.
    """
    graph = with_lifted_constants(model.graph)
    builder = FileBuilder(_expected_bytes(graph))
    resolver = write_resolver(builder, graph, model.type_strings, model.schemas)
    written = _write_model(builder, model, graph)
    root = builder.table(
        SessionSlot,
        offset(SessionSlot.ORT_VERSION, builder.text(str(CURRENT_VERSION))),
        offset(SessionSlot.MODEL, written),
        offset(SessionSlot.KERNEL_TYPE_STR_RESOLVER, resolver),
    )
    return builder.finish(root, FILE_IDENTIFIER)


def _expected_bytes(graph: Graph) -> int:
    graphs = list(graph.walk())
    weights = sum(tensor.nbytes + WEIGHT_ALIGNMENT for inner in graphs for tensor in inner.initializers.values())
    expected = weights + _BYTES_PER_NODE * sum(len(inner.nodes) for inner in graphs) + _SPARE_BYTES
    if expected > MAX_BYTES:
        raise Fail(
            f"the model takes about {expected} bytes, more than the {MAX_BYTES} that ORT format can hold; save it in ONNX "
            "format with an external file for its weights"
        )
    return expected


def _write_model(builder: FileBuilder, model: Model, graph: Graph) -> int:
    fields = (
        i64(ModelSlot.IR_VERSION, model.ir_version or FALLBACK_IR_VERSION),
        offset(ModelSlot.OPSET_IMPORT, _write_imports(builder, model)),
        offset(ModelSlot.PRODUCER_NAME, builder.text(model.producer_name)),
        offset(ModelSlot.PRODUCER_VERSION, builder.text(model.producer_version)),
        offset(ModelSlot.DOMAIN, builder.text(model.domain)),
        i64(ModelSlot.MODEL_VERSION, UNSET_MODEL_VERSION if model.model_version is None else model.model_version),
        offset(ModelSlot.DOC_STRING, builder.text(model.doc_string)),
        offset(ModelSlot.GRAPH, write_graph(builder, graph, model.schemas, model.input_denotations)),
        offset(ModelSlot.GRAPH_DOC_STRING, builder.text(graph.doc_string)),
        offset(ModelSlot.METADATA_PROPS, _write_metadata(builder, model)),
    )
    return builder.table(ModelSlot, *fields)


def _write_imports(builder: FileBuilder, model: Model) -> int:
    domains = {node.domain for inner in model.graph.walk() for node in inner.nodes}
    imports = {**dict.fromkeys(domains, 1), **model.opset_imports}
    entries = [
        builder.table(OpsetSlot, offset(OpsetSlot.DOMAIN, builder.text(domain)), i64(OpsetSlot.VERSION, version))
        for domain, version in sorted(imports.items())
    ]
    return builder.references(entries)


def _write_metadata(builder: FileBuilder, model: Model) -> int:
    entries = [
        builder.table(
            StringPairSlot, offset(StringPairSlot.KEY, builder.text(key)), offset(StringPairSlot.VALUE, builder.text(value))
        )
        for key, value in model.metadata.items()
    ]
    return builder.references(entries)
