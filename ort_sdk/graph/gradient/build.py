"""From a Gradient node to the function that computes it: the forward pass from ``xs`` to ``y``, then the backward one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ort_sdk.api import InvalidGraph
from ort_sdk.graph.graph import Graph
from ort_sdk.graph.model import Function
from ort_sdk.graph.node import Node
from ort_sdk.graph.tensor import ArrayTensor

from .rules import RULES
from .tape import Tape

__all__ = ["gradient_function"]


def gradient_function(node: Node, graph: Graph, opset_imports: Mapping[str, int]) -> Function:
    """The body of a Gradient node (ai.onnx.preview.training): partial derivatives of ``y`` with respect to ``xs``.

    Values that depend on neither ``xs`` nor ``zs`` are taken from the graph as they are.

    Raises:
        InvalidGraph: ``y`` is not made in the graph, an operator on the way has no rule, or a needed shape is not static.
    """
    xs = list(node.attributes.get("xs", []))
    inputs = xs + list(node.attributes.get("zs", []))
    y = node.attributes.get("y", "")
    forward = _forward(graph, set(inputs), y)
    tape = Tape(graph, opset_imports)
    gradients = {y: tape.emit("ConstantOfShape", tape.emit("Shape", y), value=_one(tape, y))}
    wanted = _depending(forward, set(xs))
    for step in reversed(forward):
        gradient = gradients.get(step.outputs[0])
        if gradient is None or not any(name in wanted for name in step.inputs):
            continue
        _propagate(tape, step, gradient, gradients, wanted)
    outputs = [gradients[x] if x in gradients else _zeros(tape, x) for x in xs]
    return Function(
        name="Gradient",
        domain=node.domain,
        overload="",
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        attributes=(),
        attribute_defaults={},
        nodes=(*(step.copy() for step in forward), *tape.nodes),
        opset_imports=dict(opset_imports),
    )


def _forward(graph: Graph, independent: set[str], y: str) -> list[Node]:
    """Nodes between the independent values and ``y``, in order."""
    needed: set[int] = set()
    waiting = [y]
    while waiting:
        name = waiting.pop()
        producer = None if name in independent else graph.producer(name)
        if producer is not None and id(producer) not in needed:
            needed.add(id(producer))
            waiting.extend(producer.reads())
    if not needed and y not in independent:
        raise InvalidGraph(f"Gradient of '{y}': no node of graph '{graph.name}' makes it")
    nodes = [node for node in graph.nodes if id(node) in needed]
    moving = _depending(nodes, independent)
    return [node for node in nodes if any(name in moving for name in node.reads())]


def _depending(nodes: list[Node], sources: set[str]) -> set[str]:
    """The sources and all values computed from them."""
    found = set(sources)
    for node in nodes:
        if any(name in found for name in node.reads()):
            found.update(name for name in node.outputs if name)
    return found


def _propagate(tape: Tape, step: Node, gradient: str, gradients: dict[str, str], wanted: set[str]) -> None:
    rule = RULES.get(step.op_type) if step.domain == "" else None
    if rule is None:
        raise InvalidGraph(f"{step.describe()} has no gradient; there are rules for {', '.join(sorted(RULES))}")
    for name, found in zip(step.inputs, rule(tape, step, gradient), strict=False):
        if found is None or name not in wanted:
            continue
        gradients[name] = tape.emit("Add", gradients[name], found) if name in gradients else found


def _one(tape: Tape, value: str) -> ArrayTensor:
    return ArrayTensor(np.ones(1, dtype=tape.dtype(value)))


def _zeros(tape: Tape, value: str) -> str:
    return tape.emit("Mul", value, tape.like(value, 0))
