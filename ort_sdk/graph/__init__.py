"""The in-memory model: values and references, no protobuf."""

from __future__ import annotations

from .graph import Graph
from .model import Function, Model
from .node import AttributeReference, Node, TypeString
from .runtime_optimization import RuntimeOptimization
from .tensor import ArrayTensor, SparseTensor

__all__ = [
    "ArrayTensor",
    "AttributeReference",
    "Function",
    "Graph",
    "Model",
    "Node",
    "RuntimeOptimization",
    "SparseTensor",
    "TypeString",
]
