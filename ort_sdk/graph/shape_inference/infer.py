"""The walk over a graph that applies the rules."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ort_sdk.api import NodeArg, Shape
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.operator_schemas import is_newer_than_table

from .dimensions import merge_shapes
from .node_call import CONTENTS_RULES, MAX_CONTENTS, SHAPE_RULES, Contents, NodeCall, Scope

__all__ = ["UNNAMED", "infer_shapes"]

logger = logging.getLogger("ort_sdk.graph")

MAX_SIZE = 2**63 - 1
MAX_INT32 = 2**31 - 1
UNNAMED = "?"
"""Begins the names that the optimizer gives to sizes which a model does not name; they stay inside graphs."""
NOT_INFERRED = (ArithmeticError, LookupError, TypeError, ValueError)
_FLOATS = frozenset({"tensor(bfloat16)", "tensor(double)", "tensor(float)", "tensor(float16)"})
_MICROSOFT, _BLOCKED = "com.microsoft", "com.microsoft.nchwc"
_OTHER_FAMILIES: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "attention": (
        ("", ("Attention", "RotaryEmbedding")),
        (_MICROSOFT, ("Attention", "GroupQueryAttention", "MultiHeadAttention", "QAttention", "RotaryEmbedding")),
    ),
    "blocked": (
        (_BLOCKED, ("AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReorderInput", "ReorderOutput")),
        (_BLOCKED, ("Upsample",)),
    ),
    "contrib": ((_MICROSOFT, ("CDist", "GatherBlockQuantized", "MurmurHash3")),),
    "controlflow": (("", ("If", "Loop", "Scan", "SequenceMap")),),
    "generator": (
        ("", ("BlackmanWindow", "Constant", "ConstantOfShape", "HammingWindow", "HannWindow", "Multinomial")),
        ("", ("OptionalHasElement", "RandomNormal", "RandomUniform", "Range", "SequenceLength", "Shape", "Size")),
        (_MICROSOFT, ("Range",)),
    ),
    "quantization": (
        ("", ("DynamicQuantizeLinear",)),
        (_MICROSOFT, ("DequantizeLinear", "QLinearAdd", "QLinearConcat", "QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid")),
        (_MICROSOFT, ("QLinearSoftmax", "QuantizeLinear")),
    ),
    "recurrent": (("", ("GRU", "LSTM", "RNN")), (_MICROSOFT, ("DynamicQuantizeLSTM",))),
    "resize": (("", ("Resize", "Upsample")),),
}
"""Families that are imported for a graph that has an operator of theirs, beside those imported with the package."""


@functools.cache
def _family_of() -> dict[tuple[str, str], str]:
    return {
        (domain, op_type): family for family, rows in _OTHER_FAMILIES.items() for domain, op_types in rows for op_type in op_types
    }


def _load_rules(graph: Graph) -> None:
    for key in {(node.domain, node.op_type) for inner in graph.walk() for node in inner.nodes} - SHAPE_RULES.keys():
        family = _family_of().get(key)
        if family is not None:
            importlib.import_module(f"{__package__}.rules.{family}")


def infer_shapes(graph: Graph) -> Mapping[int, Mapping[str, Contents]]:
    """Fill in the shapes of all values of a graph and its bodies.

    A graph that has not changed since is not walked again.

    Where a rule and a declared shape disagree, values take the rule's; the graph's outputs keep the declared one.

    Args:
        graph: a main graph, in topological order, types filled in; its ``values`` and ``outputs`` change.

    Returns:
        For each graph, by its ``id``, the elements of small integer values made by its nodes, as far as they are known.
    """
    if graph.inferred is not None and all(inner.is_inferred for inner in graph.walk()):
        return graph.inferred
    _load_rules(graph)
    known: dict[int, dict[str, Contents]] = {}
    _infer(graph, None, known)
    for inner in graph.walk():
        inner.is_inferred = True
    graph.inferred = known
    return known


def _infer(graph: Graph, outer: Scope | None, known: dict[int, dict[str, Contents]]) -> None:
    scope = Scope(graph, outer, lambda body, parent: _infer(body, parent, known))
    for node in graph.nodes:
        _infer_node(node, scope)
    graph.outputs = [_completed(argument, graph) for argument in graph.outputs]
    made = known[id(graph)] = {}
    for node in graph.nodes if scope.contents else ():
        for name in node.outputs:
            contents = scope.contents.get(name)
            if contents is not None:
                made[name] = contents


def _infer_node(node: Node, scope: Scope) -> None:
    key = (node.domain, node.op_type)
    rule = SHAPE_RULES.get(key)
    if rule is None or is_newer_than_table(node):
        for body in node.subgraphs.values():
            scope.infer_body(body, scope)
        return
    call = NodeCall(node, scope)
    try:
        shapes = rule(call)
    except NOT_INFERRED as error:
        logger.debug("no shape for %s: %s", node.describe(), error)
        return
    if shapes is None:
        return
    _record(node, scope.graph, shapes)
    contents_rule = CONTENTS_RULES.get(key)
    if contents_rule is not None and _may_count(scope.graph.values.get(node.outputs[0])) and _is_small(shapes[0]):
        try:
            scope.contents[node.outputs[0]] = _without_overflow(contents_rule(call), _largest(scope.graph, node.outputs[0]))
        except NOT_INFERRED as error:
            logger.debug("no contents for %s: %s", node.describe(), error)


def _may_count(argument: NodeArg | None) -> bool:
    """Whether elements of a value may be sizes: those of floats are not followed."""
    return argument is None or argument.type not in _FLOATS


def _is_small(shape: Shape | None) -> bool:
    return shape is not None and (not shape or (len(shape) == 1 and isinstance(shape[0], int) and shape[0] <= MAX_CONTENTS))


def _largest(graph: Graph, name: str) -> int:
    """The greatest number a value's type has."""
    argument = graph.values.get(name)
    return MAX_INT32 if argument is not None and argument.type == "tensor(int32)" else MAX_SIZE


def _without_overflow(contents: Contents | None, largest: int) -> Contents | None:
    """Elements beyond the type's are not known: they wrap in one way or another, and products of products grow without end."""
    if contents is None:
        return None
    return tuple(None if isinstance(element, int) and not -largest <= element <= largest else element for element in contents)


def _possible(shape: Shape) -> Shape:
    """A shape without sizes that no tensor has."""
    for size in shape:
        if isinstance(size, int) and not 0 <= size <= MAX_SIZE:
            return tuple(None if isinstance(each, int) and not 0 <= each <= MAX_SIZE else each for each in shape)
    return shape


def _record(node: Node, graph: Graph, shapes: Sequence[Shape | None]) -> None:
    values = graph.values
    for name, shape in zip(node.outputs, shapes, strict=False):
        if shape is None or not name:
            continue
        shape = _possible(shape)  # noqa: PLW2901 - what the rule said is of no use
        known = values.get(name)
        if known is None:
            values[name] = NodeArg(name, None, shape)
            continue
        if known.shape == shape or (known.type is not None and not known.type.startswith("tensor(")):
            continue
        merged = merge_shapes(known.shape, shape)
        if merged != known.shape:
            values[name] = NodeArg(name, known.type, merged)


def _declarable(shape: Shape | None) -> Shape | None:
    """A shape without names that no model gave."""
    if shape is None:
        return None
    return tuple(None if isinstance(size, str) and size.startswith(UNNAMED) else size for size in shape)


def _completed(argument: NodeArg, graph: Graph) -> NodeArg:
    found = _declarable(graph.node_arg(argument.name).shape)
    if found == argument.shape or found is None:
        return argument
    if argument.shape is None:
        return replace(argument, shape=found)
    if len(found) != len(argument.shape):
        logger.debug("output '%s' is declared as %s; inferred is %s", argument.name, argument.shape, found)
        return argument
    return replace(
        argument,
        shape=tuple(
            known if known is not None and not (isinstance(known, str) and isinstance(size, int)) else size
            for known, size in zip(argument.shape, found, strict=True)
        ),
    )
