"""``ModelProto`` → Model."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import InvalidArgument, InvalidGraph, InvalidProtobuf, NodeArg
from ort_sdk.graph import Function, Graph, Model

from .attributes import AttributeReader
from .graph_proto import GraphReader, read_metadata
from .tensor_proto import TensorReader
from .versions import FunctionKey, OperatorResolver, check_ir_version, normal_domain, parse_opset_imports, read_opset_imports

__all__ = ["convert_model"]


def convert_model(proto: Any, tensors: TensorReader) -> Model:
    """Convert a parsed model.

    Args:
        proto: ``ModelProto``.
        tensors: decodes its tensors.

    Returns:
        The model, nodes in topological order.

    Raises:
        InvalidArgument: there is no graph.
        InvalidProtobuf: names that are not UTF-8.
        InvalidGraph: the graph breaks a rule of ONNX.
        Fail: IR or opset versions are not supported.
    """
    try:
        return _convert(proto, tensors)
    except UnicodeDecodeError as error:
        raise InvalidProtobuf(f"Protobuf parsing failed: the model holds a name that is not UTF-8 ({error})") from error


def _convert(proto: Any, tensors: TensorReader) -> Model:
    import onnx

    if not proto.HasField("graph"):
        raise InvalidArgument("No graph was found in the protobuf.")
    check_ir_version(proto.ir_version if proto.HasField("ir_version") else None, onnx.IR_VERSION)
    imports = read_opset_imports(proto, proto.ir_version)
    keys = _function_keys(proto)
    functions = {
        _key(function): _read_function(function, proto.ir_version, imports, keys, tensors) for function in proto.functions
    }
    graph = GraphReader(proto.ir_version, OperatorResolver(imports, keys), tensors).read_graph(proto.graph)
    tensors.check_replacements_used()
    sort_graph(graph)
    return Model(
        graph=graph,
        opset_imports=imports,
        ir_version=proto.ir_version,
        functions=functions,
        producer_name=proto.producer_name,
        producer_version=proto.producer_version,
        domain=proto.domain,
        model_version=proto.model_version if proto.HasField("model_version") else None,
        doc_string=proto.doc_string,
        metadata=read_metadata(proto.metadata_props),
    )


def _key(proto: Any) -> FunctionKey:
    return (normal_domain(proto.domain), proto.name, proto.overload)


def _function_keys(proto: Any) -> set[FunctionKey]:
    keys: set[FunctionKey] = set()
    for function in proto.functions:
        key = _key(function)
        if key in keys:
            raise InvalidGraph(f"the model defines the function {key[0]}::{key[1]} (overload '{key[2]}') twice")
        keys.add(key)
    return keys


def _read_function(
    proto: Any, ir_version: int, model_imports: dict[str, int], keys: set[FunctionKey], tensors: TensorReader
) -> Function:
    imports = {**model_imports, **parse_opset_imports(proto.opset_import)}
    reader = GraphReader(ir_version, OperatorResolver(imports, keys), tensors)
    owner = f"function {proto.domain}::{proto.name}"
    body = Graph(name=owner, inputs=[NodeArg(name) for name in proto.input], outputs=[NodeArg(name) for name in proto.output])
    body.nodes = reader.read_nodes(proto.node, body)
    sort_graph(body)
    attributes = AttributeReader(tensors.read, tensors.read_sparse, lambda graph: reader.read_graph(graph, body))
    return Function(
        name=proto.name,
        domain=normal_domain(proto.domain),
        overload=proto.overload,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes=tuple(proto.attribute),
        attribute_defaults={attribute.name: attributes.read(attribute, owner) for attribute in proto.attribute_proto},
        nodes=tuple(body.nodes),
        opset_imports=imports,
    )


def sort_graph(graph: Graph, outer: list[str] | None = None) -> None:
    """Put a graph and its bodies in topological order, and check that every value has a maker.

    Args:
        graph: changed in place.
        outer: values of enclosing graphs that may be read.

    Raises:
        InvalidGraph: a cycle, a value made twice, read or given out without a maker, or a body that gives out an outer value.
    """
    graph.sort(outer or ())
    made = {argument.name for argument in graph.inputs} | graph.initializers.keys()
    made.update(name for node in graph.nodes for name in node.outputs if name)
    for argument in graph.outputs:
        if argument.name not in made:
            raise InvalidGraph(
                f"output '{argument.name}' of graph '{graph.name}' is made by no node, input or initializer of that graph"
            )
    for node in graph.nodes:
        for body in node.subgraphs.values():
            sort_graph(body, node.implicit_inputs)
