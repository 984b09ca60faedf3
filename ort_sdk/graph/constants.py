"""Constant nodes → initializers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, Tensor

from .graph import Graph
from .node import AttributeReference, Node
from .tensor import ArrayTensor, is_tensor

__all__ = ["constant_value", "lift_constants"]


def _strings(value: Any) -> HostArray:
    return np.array(value, dtype=object)


_FORMS: dict[str, Callable[[Any], HostArray]] = {
    "value_float": lambda value: np.array(value, dtype=np.float32),
    "value_floats": lambda value: np.array(value, dtype=np.float32),
    "value_int": lambda value: np.array(value, dtype=np.int64),
    "value_ints": lambda value: np.array(value, dtype=np.int64),
    "value_string": _strings,
    "value_strings": _strings,
}


def constant_value(node: Node) -> Tensor | None:
    """Value of a Constant node; None for other nodes, sparse values, and values that a function's call decides."""
    if node.op_type != "Constant" or node.domain or len(node.attributes) != 1:
        return None
    ((name, value),) = node.attributes.items()
    if isinstance(value, AttributeReference) or (name != "value" and name not in _FORMS):
        return None
    if name == "value":
        return value if is_tensor(value) else None
    return ArrayTensor(_FORMS[name](value))


def lift_constants(graph: Graph) -> None:
    """Replace the Constant nodes of a graph and its bodies by initializers, as ONNX Runtime does when it loads a model."""
    for inner in graph.walk():
        kept = []
        for node in inner.nodes:
            value = constant_value(node)
            if value is None:
                kept.append(node)
            else:
                inner.add_initializer(node.outputs[0], value)
        if len(kept) < len(inner.nodes):
            inner.nodes = kept
            inner.touch()
