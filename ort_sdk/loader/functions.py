"""Operators that ONNX itself defines by a body of other operators."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ort_sdk.api.optional_packages import is_installed
from ort_sdk.formats.files.byte_source import wrap_buffer
from ort_sdk.formats.files.external_file import ExternalFiles
from ort_sdk.formats.onnx.reader.function_proto import read_function
from ort_sdk.formats.onnx.reader.graph_proto import GraphReader
from ort_sdk.formats.onnx.reader.messages import NEWEST_IR_VERSION, FunctionProto
from ort_sdk.formats.onnx.reader.tensor_proto import TensorReader
from ort_sdk.formats.onnx.writer.to_proto import node_to_proto, type_to_proto
from ort_sdk.formats.versions import OperatorResolver, newest_imports, parse_opset_imports
from ort_sdk.graph import Function, Graph, Node
from ort_sdk.graph.captures import free_values

__all__ = ["operator_function"]


def operator_function(node: Node, graph: Graph, opset_version: int) -> Function | None:
    """Body by which ONNX defines a node's operator.

    Args:
        node: the call; its attributes, bodies and input types may shape the body.
        graph: the graph it is in, which knows its inputs' types.
        opset_version: version of the node's domain that the model imports. The newest body not above it is taken, or the oldest
            if all are above it; its operators are resolved with its own opset imports.

    Returns:
        The body as a function, attribute defaults included; None if the operator has none, or none for these inputs, or if
        ONNX's definitions are not installed.
    """
    if not is_installed("onnx") or not (node.op_type.isascii() and node.domain.isascii()):
        return None  # names that are no text would be refused
    import onnx.defs

    try:
        schema = onnx.defs.get_schema(node.op_type, max(node.since_version, 1), node.domain)
    except onnx.defs.SchemaError:
        return None
    wanted = max(opset_version, node.since_version)
    if schema.has_function:
        return _fixed_function(node.op_type, node.domain, schema.since_version, _choose(schema.function_opset_versions, wanted))
    if not schema.has_context_dependent_function:
        return None
    version = _choose(schema.context_dependent_function_opset_versions, wanted)
    types = [type_to_proto(argument.type, argument.shape) for argument in map(graph.node_arg, node.inputs)]
    data = schema.get_context_dependent_function_with_opset_version(
        version, node_to_proto(_with_constant_nodes(node)).SerializeToString(), [each.SerializeToString() for each in types]
    )
    return _convert(schema, data, version, _captures(node))


@functools.cache
def _fixed_function(op_type: str, domain: str, since_version: int, version: int) -> Function | None:
    import onnx.defs

    schema = onnx.defs.get_schema(op_type, since_version, domain)
    return _convert(schema, schema.get_function_with_opset_version(version), version, ())


def _choose(versions: Sequence[int], wanted: int) -> int:
    return max((version for version in versions if version <= wanted), default=min(versions))


def _with_constant_nodes(node: Node) -> Node:
    """The call, initializers of its bodies as Constant nodes: onnx builds functions from a body's nodes alone."""
    duplicate = node.copy()
    for body in duplicate.subgraphs.values():
        for inner in body.walk():
            constants = [Node("Constant", [], [name], {"value": tensor}) for name, tensor in inner.initializers.items()]
            inner.nodes[:0] = constants
            inner.initializers.clear()
    return duplicate


def _captures(node: Node) -> tuple[str, ...]:
    return tuple(name for body in node.subgraphs.values() for name in free_values(body))


def _blank_missing_outputs(proto: Any) -> None:
    """Take the name from outputs that the body does not make, for calls that omit them."""
    made = {name for node in proto.node for name in node.output} | set(proto.input)
    for index, name in enumerate(proto.output):
        proto.output[index] = name if name in made else ""


def _convert(schema: Any, data: bytes, version: int, captures: Sequence[str]) -> Function | None:
    import onnx

    proto = onnx.FunctionProto.FromString(data)
    if not proto.node:
        return None
    _blank_missing_outputs(proto)
    del proto.attribute_proto[:]
    proto.attribute_proto.extend(each.default_value for each in schema.attributes.values() if each.default_value.name)
    content = proto.SerializeToString()
    function = FunctionProto.parse(memoryview(content))
    imports = newest_imports({schema.domain: version} | parse_opset_imports(function.opset_import))
    tensors = TensorReader(wrap_buffer(content), ExternalFiles(None, None))
    reader = GraphReader(NEWEST_IR_VERSION, OperatorResolver(imports, (), is_function=True), tensors)
    return read_function(function, imports, reader, tensors, captures)
