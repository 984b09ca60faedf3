"""Model → ``.onnx`` file, weights inline or in one external file beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ort_sdk.api import Fail, InvalidArgument
from ort_sdk.api.optional_packages import needs_package
from ort_sdk.formats.files.model_files import publish_model
from ort_sdk.formats.files.unfinished_file import locked_folder, remove_leftovers, write_whole
from ort_sdk.graph import Function, Graph, Model, Node

from .to_proto import graph_to_proto, node_to_proto
from .weights_file import WeightsFile

__all__ = ["model_to_proto", "open_weights_file", "write_model", "write_model_with"]

MAX_PROTOBUF_BYTES = 2**31 - 1
FALLBACK_IR_VERSION = 8


def model_to_proto(model: Model) -> Any:
    """``ModelProto`` of a model with all weights inline.

    Raises:
        Fail: it would exceed protobuf's 2 GiB.
    """
    proto = _empty_proto(model)
    proto.graph.CopyFrom(graph_to_proto(model.graph))
    return proto


def write_model(
    model: Model,
    path: Path,
    *,
    external_file_name: str | None = None,
    min_external_bytes: int = 1024,
    overwrite: bool = True,
) -> None:
    """Write a model. Files appear whole, by renaming, or not at all; a model and its weights appear together.

    Args:
        model: the model.
        path: file to write.
        external_file_name: file beside it that takes the weights; None keeps them inline.
        min_external_bytes: smallest tensor that goes there.
        overwrite: False refuses an existing file.

    Raises:
        InvalidArgument: the external name is no plain file name, or a file exists that must not be overwritten.
        Fail: the model without external weights exceeds protobuf's 2 GiB.
        OSError: the file system refuses.
    """
    if not overwrite and path.exists():
        raise InvalidArgument(f"output file '{path}' exists, and must not be overwritten")
    if external_file_name is None:
        content = _serialized(model_to_proto(model))
        with locked_folder(path.parent):
            write_whole(path, content)
            remove_leftovers(path.parent, path.name)
        return
    with open_weights_file(path, external_file_name, min_external_bytes) as weights:
        write_model_with(model, path, weights)


def open_weights_file(path: Path, name: str, min_bytes: int) -> WeightsFile:
    """Begin the external data file of a model.

    Args:
        path: the model's file.
        name: file beside it.
        min_bytes: smallest tensor that goes there.

    Raises:
        InvalidArgument: the name is no plain file name.
        OSError: the file system refuses.
    """
    if Path(name).name != name:
        raise InvalidArgument(f"external file name {name!r} must be a plain name: the file is beside the model")
    return WeightsFile(path.parent, name, min_bytes)


def write_model_with(model: Model, path: Path, weights: WeightsFile) -> None:
    """Write a model whose weights go to a file that was begun before, and may hold some of them.

    Raises:
        Fail: the model without its external weights exceeds protobuf's 2 GiB.
        OSError: the file system refuses.
    """
    proto = _empty_proto(model)
    bare = model.graph.copy()
    bare.initializers = {}
    proto.graph.CopyFrom(graph_to_proto(bare))
    _move_bodies(model.graph, proto.graph, weights)
    proto.graph.initializer.extend(weights.tensor_proto(tensor, name) for name, tensor in model.graph.initializers.items())
    _drop_initializer_values(proto.graph)
    if weights.is_empty:
        write_whole(path, _serialized(proto))
        (path.parent / weights.name).unlink(missing_ok=True)
        return

    def serialized(location: str) -> bytes:
        _relocate(proto.graph, location)
        return _serialized(proto)

    publish_model(path, weights.unfinished, weights.name, serialized)


def _move_bodies(graph: Graph, proto: Any, weights: WeightsFile) -> None:
    """Move the weights of control flow's bodies to the file."""
    for node, node_proto in zip(graph.nodes, proto.node, strict=True):
        attributes = {attribute.name: attribute for attribute in node_proto.attribute}
        for name, value in node.attributes.items():
            attribute = attributes[name]
            if isinstance(value, Graph):
                _move_body(value, attribute.g, weights)
            elif isinstance(value, list) and value and isinstance(value[0], Graph):
                for body, body_proto in zip(value, attribute.graphs, strict=True):
                    _move_body(body, body_proto, weights)


def _move_body(body: Graph, proto: Any, weights: WeightsFile) -> None:
    _move_bodies(body, proto, weights)
    for tensor in proto.initializer:
        tensor.CopyFrom(weights.tensor_proto(body.initializers[tensor.name], tensor.name))


def _relocate(graph: Any, location: str) -> None:
    """Let all external weights refer to a file."""
    for tensor in graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs:
                _relocate(body, location)


def _drop_initializer_values(graph: Any) -> None:
    """Leave out of ``value_info`` what the initializers say themselves."""
    names = {tensor.name for tensor in graph.initializer}
    kept = [value for value in graph.value_info if value.name not in names]
    del graph.value_info[:]
    graph.value_info.extend(kept)


def _empty_proto(model: Model) -> Any:
    """``ModelProto`` without its graph."""
    with needs_package("onnx", "writing a model in ONNX format"):
        import onnx

    proto = onnx.ModelProto(
        ir_version=model.ir_version or FALLBACK_IR_VERSION,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        doc_string=model.doc_string,
    )
    if model.model_version is not None:
        proto.model_version = model.model_version
    domains = {node.domain for graph in model.graph.walk() for node in graph.nodes}
    imports = {**dict.fromkeys(domains, 1), **model.opset_imports}
    _fill_imports(proto.opset_import, imports)
    for key, value in model.metadata.items():
        proto.metadata_props.add(key=key, value=value)
    proto.functions.extend(_function_to_proto(function) for function in model.functions.values())
    return proto


def _fill_imports(field: Any, imports: Mapping[str, int]) -> None:
    for domain, version in sorted(imports.items()):
        field.add(domain=domain, version=version)


def _function_to_proto(function: Function) -> Any:
    import onnx

    proto = onnx.FunctionProto(
        name=function.name,
        domain=function.domain,
        overload=function.overload,
        input=function.inputs,
        output=function.outputs,
        attribute=function.attributes,
        node=[node_to_proto(node) for node in function.nodes],
    )
    defaults = Node("", [], [], attributes=dict(function.attribute_defaults))
    proto.attribute_proto.extend(node_to_proto(defaults).attribute)
    _fill_imports(proto.opset_import, function.opset_imports)
    return proto


def _serialized(proto: Any) -> bytes:
    size = proto.ByteSize()
    if size > MAX_PROTOBUF_BYTES:
        raise Fail(
            f"the model takes {size} bytes, more than protobuf's {MAX_PROTOBUF_BYTES}; name an external file for its weights"
        )
    content: bytes = proto.SerializeToString()
    return content
