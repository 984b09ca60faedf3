"""The nodes of a backward pass while it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidGraph, find_schema
from ort_sdk.graph.graph import Graph
from ort_sdk.graph.node import Node
from ort_sdk.graph.tensor import ArrayTensor

__all__ = ["Tape"]


class Tape:
    """Collects nodes and names their values.

    Args:
        graph: graph that is differentiated, which knows types and shapes.
        opset_imports: domain → version of the model; the backward pass is written in its default opset.
    """

    def __init__(self, graph: Graph, opset_imports: Mapping[str, int]) -> None:
        self.graph = graph
        self.opset = opset_imports.get("", 1)
        self.nodes: list[Node] = []

    def emit(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; returns the output's name."""
        output = f"gradient_{len(self.nodes)}"
        schema = find_schema(op_type, self.opset)
        if schema is None:
            raise InvalidGraph(f"the backward pass needs {op_type}, which opset {self.opset} of ai.onnx does not have")
        self.nodes.append(Node(op_type, list(inputs), [output], dict(attributes), since_version=schema.since_version))
        return output

    def constant(self, array: HostArray) -> str:
        """A constant value."""
        return self.emit("Constant", value=ArrayTensor(array))

    def like(self, value: str, number: float) -> str:
        """A scalar of a value's element type."""
        return self.constant(np.asarray(number, dtype=self.dtype(value)))

    def dtype(self, value: str) -> np.dtype[Any]:
        """Element type of a value of the graph."""
        element_type = self.graph.node_arg(value).element_type
        if element_type is None:
            raise InvalidGraph(f"the type of '{value}' is not known, so it cannot be differentiated")
        return element_type.numpy_dtype

    def shape(self, value: str) -> tuple[int, ...]:
        """Static shape of a value of the graph.

        Raises:
            InvalidGraph: it is not static; where broadcasting has to be undone, shapes must be.
        """
        shape = self.graph.node_arg(value).shape
        if shape is None or not all(isinstance(dimension, int) for dimension in shape):
            raise InvalidGraph(f"'{value}' has the shape {shape}: differentiating through it needs a static shape")
        return tuple(dimension for dimension in shape if isinstance(dimension, int))

    def reduce_sum(self, value: str, axes: Sequence[int], *, keepdims: bool) -> str:
        """Sum over axes, in the form the opset has."""
        if self.opset >= 13:
            return self.emit("ReduceSum", value, self.constant(np.asarray(axes, dtype=np.int64)), keepdims=int(keepdims))
        return self.emit("ReduceSum", value, axes=list(axes), keepdims=int(keepdims))

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """The value under another shape."""
        return self.emit("Reshape", value, self.constant(np.asarray(shape, dtype=np.int64)))

    def unbroadcast(self, gradient: str, made: Sequence[int], source: str) -> str:
        """A gradient of shape ``made`` summed down to the shape of ``source``, which was broadcast to it."""
        wanted = self.shape(source)
        if tuple(made) == wanted:
            return gradient
        lead = len(made) - len(wanted)
        axes = [axis for axis in range(len(made)) if axis < lead or (wanted[axis - lead] == 1 and made[axis] != 1)]
        return self.reshape(self.reduce_sum(gradient, axes, keepdims=True), wanted)
