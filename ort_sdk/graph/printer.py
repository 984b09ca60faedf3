"""A graph as text and as plain values, for people and for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ort_sdk.api import NodeArg, TensorElementType

from .graph import Graph
from .node import AttributeReference, Node

__all__ = ["attribute_text", "describe_graph", "format_graph", "value_text"]

MAX_ELEMENTS = 8
"""Elements of an attribute that are printed; of longer ones the type and the shape."""


def format_graph(graph: Graph, indent: str = "") -> str:
    """A graph as indented text: inputs, weights, nodes in order, outputs; bodies below their nodes."""
    inner = f"{indent}  "
    lines = [f"{indent}graph '{graph.name}'"]
    lines += [f"{inner}input   {argument.name}: {value_text(argument)}" for argument in graph.inputs]
    lines += [
        f"{inner}weight  {name}: {value_text(graph.node_arg(name))}, {tensor.nbytes:,} bytes"
        for name, tensor in graph.initializers.items()
    ]
    for node in graph.nodes:
        lines += _node_lines(node, graph, inner)
    lines += [f"{inner}output  {argument.name}: {value_text(argument)}" for argument in graph.outputs]
    return "\n".join(lines)


def describe_graph(graph: Graph) -> dict[str, Any]:
    """The same as values that JSON can hold."""
    return {
        "name": graph.name,
        "inputs": [_argument(argument) for argument in graph.inputs],
        "outputs": [_argument(argument) for argument in graph.outputs],
        "initializers": [
            _argument(graph.node_arg(name)) | {"size_bytes": tensor.nbytes} for name, tensor in graph.initializers.items()
        ],
        "nodes": [_node(node, graph) for node in graph.nodes],
    }


def value_text(argument: NodeArg) -> str:
    """Type and shape of a value: ``float[batch, 10]``, ``seq(tensor(float))``."""
    kind = argument.type or "?"
    if kind.startswith("tensor("):
        kind = kind[7:-1]
    if argument.shape is None:
        return f"{kind}[...]" if argument.type is not None and argument.type.startswith("tensor(") else kind
    return f"{kind}[{', '.join('?' if dim is None else str(dim) for dim in argument.shape)}]"


def attribute_text(value: Any) -> str:
    """An attribute's value, short."""
    if isinstance(value, Graph):
        return f"graph '{value.name}'"
    if isinstance(value, AttributeReference):
        return f"@{value.name}"
    if isinstance(value, (list, tuple)):
        if len(value) > MAX_ELEMENTS:
            return f"[{', '.join(attribute_text(item) for item in value[:MAX_ELEMENTS])}, ... {len(value)} in all]"
        return f"[{', '.join(attribute_text(item) for item in value)}]"
    if isinstance(getattr(value, "element_type", None), TensorElementType):
        return _tensor_text(value)
    return f"{value:.7g}" if isinstance(value, float) else repr(value)


def _tensor_text(tensor: Any) -> str:
    elements = 1
    for dim in tensor.shape:
        elements *= dim
    kind = f"{tensor.element_type.onnx_name}{list(tensor.shape)}"
    return f"{kind} {tensor.numpy().tolist()}" if elements <= MAX_ELEMENTS else kind


def _node_lines(node: Node, graph: Graph, indent: str) -> list[str]:
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    made = ", ".join(f"{name}: {value_text(graph.node_arg(name))}" if name else "_" for name in node.outputs)
    attributes = ", ".join(f"{name}={attribute_text(value)}" for name, value in node.attributes.items())
    tail = f" <{attributes}>" if attributes else ""
    provider = f" @{node.execution_provider}" if node.execution_provider else ""
    version = f"-{node.since_version}" if node.since_version else ""
    lines = [f"{indent}{made} = {operator}{version}({_arguments(node.inputs)}){tail}{provider}"]
    for name, body in node.subgraphs.items():
        lines += [f"{indent}  {name}:", format_graph(body, f"{indent}    ")]
    return lines


def _arguments(names: Sequence[str]) -> str:
    return ", ".join(name or "_" for name in names)


def _argument(argument: NodeArg) -> dict[str, Any]:
    shape = None if argument.shape is None else list(argument.shape)
    return {"name": argument.name, "type": argument.type, "shape": shape}


def _node(node: Node, graph: Graph) -> dict[str, Any]:
    return {
        "name": node.name,
        "domain": node.domain,
        "op_type": node.op_type,
        "since_version": node.since_version,
        "provider": node.execution_provider,
        "inputs": list(node.inputs),
        "outputs": [_argument(graph.node_arg(name)) if name else None for name in node.outputs],
        "attributes": {name: attribute_text(value) for name, value in node.attributes.items()},
        "bodies": {name: describe_graph(body) for name, body in node.subgraphs.items()},
    }
