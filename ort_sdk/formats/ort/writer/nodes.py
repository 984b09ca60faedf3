"""Nodes and their attributes → ``Node``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import Fail, OperatorSchema, ParameterOption
from ort_sdk.formats.ort.slots import AttributeKind, AttributeSlot, NodeSlot
from ort_sdk.graph import AttributeReference, Graph, Node, SparseTensor, TypeString
from ort_sdk.graph.tensor import is_tensor

from .builder import Field, FileBuilder, f32, i32, i64, offset, u32
from .tensors import write_tensor

__all__ = ["input_arg_counts", "write_node"]

GraphWriter = Callable[[Graph], int]
"""Writes a body."""


def write_node(builder: FileBuilder, node: Node, index: int, schema: OperatorSchema | None, write_graph: GraphWriter) -> int:
    """A ``Node`` with its attributes, those at their schema's defaults included.

    Raises:
        Fail: an attribute is of a kind the format has no form for.
    """
    attributes = _complete_attributes(node, schema)
    written = [_write_attribute(builder, name, kind, value, write_graph) for name, kind, value in attributes]
    fields = (
        offset(NodeSlot.NAME, builder.text(node.name)),
        offset(NodeSlot.DOC_STRING, builder.text("")),
        offset(NodeSlot.DOMAIN, builder.text(node.domain)),
        i32(NodeSlot.SINCE_VERSION, node.since_version),
        u32(NodeSlot.INDEX, index),
        offset(NodeSlot.OP_TYPE, builder.text(node.op_type)),
        offset(NodeSlot.EXECUTION_PROVIDER_TYPE, builder.text(node.execution_provider)),
        offset(NodeSlot.INPUTS, builder.texts(node.inputs)),
        offset(NodeSlot.OUTPUTS, builder.texts(node.outputs)),
        offset(NodeSlot.ATTRIBUTES, builder.references(written)),
        offset(NodeSlot.INPUT_ARG_COUNTS, builder.numbers(input_arg_counts(node, schema), "<i4")),
        offset(NodeSlot.IMPLICIT_INPUTS, builder.texts(node.implicit_inputs)),
    )
    return builder.table(NodeSlot, *fields)


def input_arg_counts(node: Node, schema: OperatorSchema | None) -> list[int]:
    """How many of a node's inputs belong to each formal input: one each, all further ones to a variadic one."""
    given = len(node.inputs)
    if schema is None:
        return [1] * given
    counts = [int(index < given) for index in range(len(schema.inputs))]
    if schema.inputs and schema.inputs[-1].option is ParameterOption.VARIADIC:
        counts[-1] = max(0, given - len(schema.inputs) + 1)
    return counts


def _complete_attributes(node: Node, schema: OperatorSchema | None) -> list[tuple[str, AttributeKind, Any]]:
    types = {} if schema is None else schema.attribute_types
    defaults = {} if schema is None else schema.attribute_defaults
    values = {**node.attributes, **{name: value for name, value in defaults.items() if name not in node.attributes}}
    return [(name, _kind(node, name, value, types.get(name, 0)), value) for name, value in values.items()]


def _kind(node: Node, name: str, value: Any, declared: int) -> AttributeKind:
    """Kind of an attribute: its schema's, else that of its value."""
    sample = value[0] if isinstance(value, list) and value else value
    is_storable = not isinstance(sample, (AttributeReference, SparseTensor, TypeString)) and not (
        isinstance(value, list) and isinstance(sample, Graph)
    )
    if is_storable and declared in set(AttributeKind):
        return AttributeKind(declared)
    if not is_storable or declared:
        raise Fail(
            f"attribute '{name}' of {node.describe()} is a {type(sample).__name__}, which ORT format has no form for; "
            "save the model in ONNX format"
        )
    plural = AttributeKind.FLOATS - AttributeKind.FLOAT if isinstance(value, list) else 0
    return AttributeKind(_kind_of(sample) + plural)


def _kind_of(value: Any) -> AttributeKind:
    for types, kind in ((float, AttributeKind.FLOAT), (str, AttributeKind.STRING), (Graph, AttributeKind.GRAPH)):
        if isinstance(value, types):
            return kind
    # An empty list does not say of what; integers are what empty lists in models are.
    return AttributeKind.TENSOR if is_tensor(value) else AttributeKind.INT


def _write_attribute(builder: FileBuilder, name: str, kind: AttributeKind, value: Any, write_graph: GraphWriter) -> int:
    field = _value_field(builder, kind, value, write_graph)
    named, doc = builder.text(name), builder.text("")
    return builder.table(
        AttributeSlot,
        offset(AttributeSlot.NAME, named),
        offset(AttributeSlot.DOC_STRING, doc),
        i32(AttributeSlot.TYPE, int(kind)),
        field,
    )


def _value_field(builder: FileBuilder, kind: AttributeKind, value: Any, write_graph: GraphWriter) -> Field:
    if kind is AttributeKind.FLOAT:
        return f32(AttributeSlot.F, float(value))
    if kind is AttributeKind.INT:
        return i64(AttributeSlot.I, int(value))
    if kind is AttributeKind.STRING:
        return offset(AttributeSlot.S, builder.text(value))
    if kind is AttributeKind.TENSOR:
        return offset(AttributeSlot.T, write_tensor(builder, value, ""))
    if kind is AttributeKind.GRAPH:
        return offset(AttributeSlot.G, write_graph(value))
    if kind is AttributeKind.FLOATS:
        return offset(AttributeSlot.FLOATS, builder.numbers(value, "<f4"))
    if kind is AttributeKind.INTS:
        return offset(AttributeSlot.INTS, builder.numbers(value, "<i8"))
    if kind is AttributeKind.STRINGS:
        return offset(AttributeSlot.STRINGS, builder.texts(value))
    return offset(AttributeSlot.TENSORS, builder.references([write_tensor(builder, each, "") for each in value]))
