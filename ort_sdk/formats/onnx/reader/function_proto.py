"""``FunctionProto`` → Function, and checks on a model's functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ort_sdk.api import InvalidGraph, NodeArg
from ort_sdk.api.data_classes import dataclass
from ort_sdk.formats.versions import FunctionKey, OperatorResolver, normal_domain, parse_opset_imports
from ort_sdk.graph import Function, Graph, Node
from ort_sdk.graph.operator_schemas import OperatorSchemas

from .attributes import AttributeReader
from .graph_proto import GraphReader, sort_graph
from .tensor_proto import TensorReader

__all__ = ["check_calls", "function_keys", "read_function", "read_functions"]

_MAX_INLINED_NODES = 1_000_000
_MAX_CALL_DEPTH = 128
_MAX_BODY_DEPTH = 50
"""Some ten frames of the interpreter's stack for each level."""


def function_keys(protos: Iterable[Any]) -> set[FunctionKey]:
    """Keys of a model's functions.

    Raises:
        InvalidGraph: one key twice.
    """
    keys: set[FunctionKey] = set()
    for proto in protos:
        key = _key(proto)
        if key in keys:
            raise InvalidGraph(f"the model defines the function {key[0]}::{key[1]} (overload '{key[2]}') twice")
        keys.add(key)
    return keys


def _key(proto: Any) -> FunctionKey:
    return (normal_domain(proto.domain), proto.name, proto.overload)


def read_functions(
    protos: Iterable[Any],
    ir_version: int,
    model_imports: Mapping[str, int],
    keys: set[FunctionKey],
    tensors: TensorReader,
    schemas: OperatorSchemas,
) -> dict[FunctionKey, Function]:
    """Convert a model's functions. Domains that a function does not import are in force as the model imports them.

    Raises:
        InvalidGraph: a function breaks a rule of ONNX.
    """
    functions: dict[FunctionKey, Function] = {}
    for proto in protos:
        imports = {**model_imports, **parse_opset_imports(proto.opset_import)}
        reader = GraphReader(ir_version, OperatorResolver(imports, keys, schemas, is_function=True), tensors)
        function = read_function(proto, imports, reader, tensors)
        functions[function.domain, function.name, function.overload] = function
    return functions


def read_function(
    proto: Any, imports: Mapping[str, int], reader: GraphReader, tensors: TensorReader, captures: Iterable[str] = ()
) -> Function:
    """Convert one function, its nodes put in topological order.

    Args:
        proto: ``FunctionProto``.
        imports: opset imports in force in it.
        reader: converts its nodes.
        tensors: decodes tensors in the defaults of attributes.
        captures: values that its nodes may read beside its inputs.

    Raises:
        InvalidGraph: the body breaks a rule of ONNX.
    """
    domain, name, overload = _key(proto)
    owner = f"function {domain}::{name}"
    inputs, outputs = tuple(proto.input), tuple(proto.output)
    body = Graph(name=owner, inputs=[NodeArg(each) for each in inputs], outputs=[NodeArg(each) for each in outputs if each])
    body.nodes = reader.read_nodes(proto.node, body)
    sort_graph(body, captures)
    attributes = AttributeReader(tensors.read, tensors.read_sparse, lambda graph: reader.read_graph(graph, body))
    return Function(
        name=name,
        domain=domain,
        overload=overload,
        inputs=inputs,
        outputs=outputs,
        attributes=tuple(proto.attribute),
        attribute_defaults={each.name: attributes.read(each, lambda: owner) for each in proto.attribute_proto},
        nodes=tuple(body.nodes),
        opset_imports=dict(imports),
    )


@dataclass(frozen=True, slots=True)
class _Extent:
    """What a list of nodes would become if all calls of functions were inlined."""

    nodes: int
    """Nodes, those of bodies included."""
    calls: int
    """Longest chain of calls."""
    bodies: int
    """Deepest nesting of bodies."""


def check_calls(functions: Mapping[FunctionKey, Function], graph: Graph) -> None:
    """Refuse functions that call each other in a circle, or with which the model would grow beyond all measure.

    Args:
        functions: the model's.
        graph: its main graph.

    Raises:
        InvalidGraph: they do.
    """
    if not functions and not graph.bodies():
        return
    calls = {key: {call for call in _calls(function.nodes) if call in functions} for key, function in functions.items()}
    callers: dict[FunctionKey, list[FunctionKey]] = {key: [] for key in functions}
    missing = {key: len(called) for key, called in calls.items()}
    for key, called in calls.items():
        for callee in called:
            callers[callee].append(key)
    extents: dict[FunctionKey, _Extent] = {}
    ready = [key for key, count in missing.items() if count == 0]
    while ready:
        key = ready.pop()
        extents[key] = _extent(functions[key].nodes, extents, f"function {key[0]}::{key[1]}")
        for caller in callers[key]:
            missing[caller] -= 1
            if missing[caller] == 0:
                ready.append(caller)
    circle = [f"{key[0]}::{key[1]}" for key in functions if key not in extents]
    if circle:
        raise InvalidGraph(f"functions of the model call each other in a circle: {', '.join(circle[:5])}")
    _extent(graph.nodes, extents, f"graph '{graph.name}'")


def _extent(nodes: Iterable[Node], extents: Mapping[FunctionKey, _Extent], owner: str) -> _Extent:
    """Extent of nodes whose callees' extents are known."""
    total = calls = bodies = 0
    for node in nodes:
        callee = extents.get((node.domain, node.op_type, node.overload))
        if callee is None:
            total += 1
        else:
            total, calls, bodies = total + callee.nodes, max(calls, callee.calls + 1), max(bodies, callee.bodies)
        for body in node.subgraphs.values():
            inner = _extent(body.nodes, extents, owner)
            total, calls, bodies = total + inner.nodes, max(calls, inner.calls), max(bodies, inner.bodies + 1)
    if calls and total > _MAX_INLINED_NODES:
        raise InvalidGraph(f"{owner} would inline to more than {_MAX_INLINED_NODES} nodes")
    if calls > _MAX_CALL_DEPTH:
        raise InvalidGraph(f"{owner} calls functions that call functions, more than {_MAX_CALL_DEPTH} deep")
    if bodies > _MAX_BODY_DEPTH:
        raise InvalidGraph(
            f"{owner} nests bodies of control flow more than {_MAX_BODY_DEPTH} deep, those of its functions included"
        )
    return _Extent(total, calls, bodies)


def _calls(nodes: Iterable[Node]) -> Iterable[FunctionKey]:
    for node in nodes:
        yield (node.domain, node.op_type, node.overload)
        for body in node.subgraphs.values():
            yield from _calls(body.nodes)
