"""Values that the file has in blocks and the restored graph in NCHW, and the nodes that lead from one to the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ort_sdk.api import InvalidGraph, NodeArg, Shape, Tensor
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Graph, Model, Node
from ort_sdk.graph.editing import add_constant, unused_name
from ort_sdk.graph.tensor import ArrayTensor

from .domain import NCHWC

__all__ = ["RestoredGraph", "RestoredValue"]

FLOAT = "tensor(float)"


@dataclass(frozen=True, slots=True)
class RestoredValue:
    """What stands for a value that the file has in blocks."""

    name: str
    """Of the value of the restored graph, (N, C, H, W)."""
    channels: int
    """C."""
    padded: int
    """Channels in the file: whole blocks."""
    fill: float = 0.0
    """What the file's channels beyond C hold; it does not matter if all readers drop them."""
    is_split: bool = False
    """Whether nodes of the file see it as (N, C / block, H, W, block), so that sizes of 1 are repeated."""


class RestoredGraph:
    """A graph while its nodes are replaced, in order: the new nodes, and what became of the file's values.

    A value of the file that is still wanted as it is (by a node that is not known to work on blocks, or as an output of the
    graph) keeps its name; its restored form gets another one.

    Args:
        graph: its tables are those of the file until ``finish``.
        model: the model it is of.
        block: channels of a block.
    """

    def __init__(self, graph: Graph, model: Model, block: int) -> None:
        self.graph = graph
        self.block = block
        self._model = model
        self._nodes: list[Node] = []
        self._values: dict[str, RestoredValue] = {}
        self._made: set[str] = set()
        self._constants: dict[Any, str] = {}

    # Nodes and constants

    def version(self, domain: str = "") -> int:
        """Version of a domain that the model imports."""
        return self._model.opset_imports.get(domain, 1)

    def keep(self, node: Node) -> None:
        """Add a node of the file's."""
        self._nodes.append(node)
        self._made.update(node.outputs)

    def add(
        self,
        op_type: str,
        inputs: Sequence[str],
        output: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        like: Node | None = None,
        domain: str = "",
    ) -> str:
        """Add a node with one output, in the version that the model imports; returns the output's name.

        Args:
            op_type: its operator.
            inputs: empty names at the end are left out.
            output: name of its output.
            attributes: its attributes.
            like: the node of the file that it stands for, whose name it gets.
            domain: its operator's domain.

        Raises:
            InvalidGraph: the model's opset does not have the operator.
        """
        schema = self._model.schemas.find(op_type, self.version(domain), domain)
        if schema is None:
            raise InvalidGraph(
                f"a node of {NCHWC} needs the operator {op_type}, which opset {self.version(domain)} does not have; save the "
                "model with onnxruntime at ORT_ENABLE_EXTENDED, or with a later opset"
            )
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        name = like.name if like is not None else output
        self.keep(Node(op_type, list(inputs), [output], dict(attributes or {}), domain, name, since_version=schema.since_version))
        return output

    def constant(self, tensor: Tensor, wanted: str, *key: Any) -> str:
        """Name of a constant; one for equal keys, if any are given."""
        name = self._constants.get(key) if key else None
        if name is None:
            name = add_constant(self.graph, wanted, tensor)
            if key:
                self._constants[key] = name
        return name

    def integers(self, *numbers: int) -> str:
        """Name of a constant of int64."""
        return self.constant(ArrayTensor(np.array(numbers, np.int64)), "nchw_sizes", numbers)

    def new_value(self, wanted: str, shape: Shape | None, kind: str = FLOAT) -> str:
        """An unused name, with what is known of its value."""
        name = unused_name(self.graph, wanted)
        self.graph.set_value(NodeArg(name, kind, shape))
        return name

    # Values in blocks

    def is_restored(self, name: str) -> bool:
        """Whether a name of the file is that of a value in blocks which the new graph has in NCHW."""
        return name in self._values

    def set_restored(self, name: str, value: RestoredValue) -> None:
        """Note what a value of the file is replaced by."""
        self._values[name] = value

    def restored(self, name: str, node: Node) -> RestoredValue:
        """What stands for a value in blocks that a node of the file reads; made of the blocks if nothing does yet.

        Raises:
            InvalidGraph: its channels are not known, or they are no whole blocks.
        """
        if name not in self._values:
            shape = self.graph.node_arg(name).shape
            channels = shape[1] if shape is not None and len(shape) == 4 else None
            if not isinstance(channels, int) or channels % self.block:
                raise InvalidGraph(
                    f"{node.describe()}: input '{name}' has shape {shape}; it must be (N, C, H, W), C being whole blocks of "
                    f"{self.block} channels"
                )
            plain = self.new_value(f"{name}_nchw", shape)
            target = self.integers(0, channels // self.block, -1, self.block)
            self._reordered(name, target, plain)
            self._values[name] = RestoredValue(plain, channels, channels)
        return self._values[name]

    def name_for(self, name: str, channels: int) -> str:
        """A name for what will stand for a value of the file's: that of its ReorderOutput's result, if that is all it takes."""
        for reader in self.graph.consumers(name):
            if reader.domain == NCHWC and reader.op_type == "ReorderOutput" and not reader.attributes.get("channels_last", 0):
                output = reader.outputs[0]
                if reader.attributes.get("channels") == channels and output not in self._made:
                    return output
        return self.new_value(f"{name}_nchw", self.shape_of(name, channels))

    def shape_of(self, name: str, channels: int) -> Shape | None:
        """Shape of a value of the file's once it is in NCHW."""
        shape = self.graph.node_arg(name).shape
        return None if shape is None or len(shape) not in (4, 5) else (shape[0], channels, *shape[2:4])

    def with_channels(self, value: RestoredValue, channels: int) -> RestoredValue:
        """The value with channels added, which hold what they hold in the file."""
        missing = channels - value.channels
        if missing <= 0:
            return value
        pads = [0, 0, 0, 0, 0, missing, 0, 0]
        shape = self.graph.node_arg(value.name).shape
        output = self.new_value(f"{value.name}_padded", None if shape is None else (shape[0], channels, *shape[2:]))
        if self.version() < 11:
            self.add("Pad", [value.name], output, {"pads": pads, "value": value.fill})
        else:
            fill = self.constant(ArrayTensor(np.array(value.fill, np.float32)), "nchw_fill", value.fill)
            self.add("Pad", [value.name, self.integers(*pads), fill], output)
        return replace(value, name=output, channels=channels)

    def padded(self, value: RestoredValue) -> RestoredValue:
        """The value with all of the file's channels."""
        return self.with_channels(value, value.padded)

    # Values as the file has them

    def want_as_in_file(self, names: Iterable[str]) -> None:
        """Make values in blocks, under their names, where they are only there in NCHW."""
        for name in names:
            value = self._values.get(name)
            if value is None or name in self._made or name == value.name:
                continue
            value = self.padded(value)
            target = self.integers(0, value.padded // self.block, self.block, -1)
            if not value.is_split:
                self._reordered(value.name, target, name)
                continue
            whole = self._reordered(value.name, target, self.new_value(f"{name}_blocks", None))
            self.add("Reshape", [whole, self.integers(0, -1, 0, 0, self.block)], name)

    def _reordered(self, name: str, target: str, output: str) -> str:
        """(N, blocks, a, b) → (N, blocks, b, a), and back to the value's own shape."""
        split = self.add("Reshape", [name, target], self.new_value(f"{name}_split", None))
        transposed = self.add("Transpose", [split], self.new_value(f"{name}_transposed", None), {"perm": [0, 1, 3, 2]})
        shape = self.add("Shape", [name], self.new_value(f"{name}_shape", None, "tensor(int64)"))
        return self.add("Reshape", [transposed, shape], output)

    def finish(self) -> None:
        """Replace the file's nodes by the new ones, without the constants that only those read."""
        graph = self.graph
        self.want_as_in_file([argument.name for argument in graph.outputs])
        old = {name for node in graph.nodes for name in (*node.reads(), *node.outputs)}
        graph.nodes = self._nodes
        graph.touch()
        kept = {name for node in self._nodes for name in (*node.reads(), *node.outputs)}
        kept |= graph.output_names() | {argument.name for argument in graph.inputs}
        for name in old - kept:
            graph.initializers.pop(name, None)
            graph.values.pop(name, None)
