"""ONNX's nodes between those on blocks: they compute element by element, so that the order of elements does not matter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ort_sdk.graph import Node

from .values import RestoredGraph, RestoredValue

__all__ = ["activated", "keeps_blocks"]

_UNARY = frozenset(
    (
        *("Abs", "Celu", "Clip", "Elu", "Erf", "Exp", "FastGelu", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu"),
        *("Mish", "Neg", "QuickGelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh"),
        "ThresholdedRelu",
    )
)
_VARIADIC = frozenset(("Add", "Div", "Max", "Min", "Mul", "Sub", "Sum"))
_KEEP_ZERO = _UNARY - {"Clip", "Exp", "HardSigmoid", "Sigmoid", "Softplus"}
_ACTIVATED: dict[str, Callable[[float, Mapping[str, Any]], float]] = {
    "Clip": lambda x, given: min(max(x, given.get("min", -math.inf)), given.get("max", math.inf)),
    "HardSigmoid": lambda x, given: min(max(given.get("alpha", 0.2) * x + given.get("beta", 0.5), 0.0), 1.0),
    "Sigmoid": lambda x, _: 1 / (1 + math.exp(-x)) if abs(x) < 700 else float(x > 0),
}
_COMBINED: dict[str, Callable[[Sequence[float]], float]] = {"Add": sum, "Max": max, "Min": min, "Mul": math.prod, "Sum": sum}


def activated(name: str, x: float, parameters: Mapping[str, Any]) -> float | None:
    """What an activation makes of a number; None if that is not known.

    Args:
        name: operator; empty for none.
        x: the number.
        parameters: attributes, ``min`` and ``max`` for Clip.
    """
    if not name or (x == 0 and name in _KEEP_ZERO):
        return x
    known = _ACTIVATED.get(name)
    return None if known is None else known(x, parameters)


def keeps_blocks(node: Node, graph: RestoredGraph) -> bool:
    """Let a node of ONNX's that reads values in blocks read them in NCHW, if that makes no difference.

    Returns:
        Whether the node is replaced. If not, it takes the values as they are in the file.
    """
    if node.op_type == "Reshape" and not node.domain:
        return _is_other_view(node, graph)
    if node.op_type == "Concat" and not node.domain:
        return _concatenates(node, graph)
    is_known = node.op_type in _UNARY or (node.op_type in _VARIADIC and not node.domain)
    return is_known and len(node.outputs) == 1 and _computes_elements(node, graph)


def _is_other_view(node: Node, graph: RestoredGraph) -> bool:
    """Reshapes between (N, C, H, W) and (N, C / block, H, W, block), by which ONNX Runtime lets operands be repeated."""
    tensor = graph.graph.constant(node.inputs[1])
    if tensor is None or not graph.is_restored(node.inputs[0]):
        return False
    value = graph.restored(node.inputs[0], node)
    numbers = tuple(map(int, tensor.numpy().reshape(-1)))
    blocks = value.padded // graph.block
    split = {(0, count, 0, 0, graph.block) for count in (-1, blocks)}
    whole = {(0, count, 0, 0) for count in (-1, value.padded)}
    if numbers not in (whole if value.is_split else split):
        return False
    graph.set_restored(node.outputs[0], replace(value, is_split=not value.is_split))
    return True


def _concatenates(node: Node, graph: RestoredGraph) -> bool:
    """Concat of channels, which are whole blocks."""
    if not all(map(graph.is_restored, node.inputs)) or node.attributes.get("axis", 1) not in (1, -3):
        return False
    values = [graph.restored(name, node) for name in node.inputs]
    if any(value.is_split for value in values):
        return False
    padded = [graph.padded(value) for value in values]
    channels = sum(value.padded for value in padded)
    output = node.outputs[0]
    name = graph.add("Concat", [value.name for value in padded], graph.name_for(output, channels), {"axis": 1}, like=node)
    graph.set_restored(output, RestoredValue(name, channels, channels))
    return True


def _computes_elements(node: Node, graph: RestoredGraph) -> bool:
    names = [name for name in node.inputs if graph.is_restored(name)]
    values = {name: graph.restored(name, node) for name in names}
    others = [name for name in node.inputs if name and name not in values]
    if not all(_is_scalar(name, graph) for name in others) or not _match(list(values.values()), names, graph):
        return False
    fill = None if others else _fill(node, [values[name].fill for name in names])
    if fill is None or len({value.channels for value in values.values()}) > 1:
        values = {name: graph.padded(value) for name, value in values.items()}
    first, output = values[names[0]], node.outputs[0]
    inputs = [values[name].name if name in values else name for name in node.inputs]
    target = graph.name_for(output, first.channels)
    name = graph.add(node.op_type, inputs, target, node.attributes, like=node, domain=node.domain)
    graph.set_restored(output, replace(first, name=name, fill=fill or 0.0))
    return True


def _fill(node: Node, fills: list[float]) -> float | None:
    if node.op_type in _VARIADIC:
        combine = _COMBINED.get(node.op_type)
        return None if combine is None else combine(fills)
    return activated(node.op_type, fills[0], node.attributes)


def _is_scalar(name: str, graph: RestoredGraph) -> bool:
    tensor = graph.graph.constant(name)
    return tensor is not None and math.prod(tensor.shape) == 1 and len(tensor.shape) <= 1


def _match(values: list[RestoredValue], names: list[str], graph: RestoredGraph) -> bool:
    """Whether values are of one form and size. ONNX Runtime combines whole values only if their shapes are the same."""
    if len({(value.is_split, value.padded) for value in values}) > 1:
        return False
    if values[0].is_split:
        return True
    shapes = [shape for shape in (graph.graph.node_arg(name).shape for name in names) if shape is not None]
    return all(len({size for size in sizes if isinstance(size, int)}) <= 1 for sizes in zip(*shapes, strict=False))
