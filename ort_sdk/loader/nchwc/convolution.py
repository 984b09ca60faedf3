"""Conv on blocks of channels → Conv, or FusedConv with what is added and the activation."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import InvalidGraph, Tensor
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Node

from .between import activated
from .domain import NCHWC
from .values import RestoredGraph, RestoredValue
from .weights import has_weights_for, outputs_with_weights, plain_weight, shortened

__all__ = ["restore_conv"]

MICROSOFT = "com.microsoft"
_WINDOW_ATTRIBUTES = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
_FUSED_ATTRIBUTES = ("activation", "activation_params")


@dataclass(frozen=True, slots=True)
class _Conv:
    """A node, and what its shapes say of it."""

    node: Node
    weight: Tensor
    bias: Tensor | None
    groups: int
    block: int

    @property
    def outputs(self) -> int:
        """Output channels, whole blocks."""
        return self.weight.shape[0]

    @property
    def inputs(self) -> int:
        """Input channels of a group."""
        return self.weight.shape[1]

    @property
    def is_depthwise(self) -> bool:
        """Whether every channel is a group."""
        return self.groups > 1 and self.inputs == 1 and self.groups == self.outputs

    @property
    def has_weights_in_blocks(self) -> bool:
        """Whether the weight is in blocks of input channels, too."""
        return self.inputs >= self.block

    @property
    def reads_blocks(self) -> bool:
        """Whether the input is in blocks; a few channels are read as plain NCHW."""
        return self.has_weights_in_blocks or self.is_depthwise


def restore_conv(node: Node, graph: RestoredGraph) -> None:
    """Replace a Conv of the domain. Channels that only fill blocks are left out where that changes no result.

    Raises:
        InvalidGraph: the weight is no constant, or shapes do not fit together.
    """
    conv = _read(node, graph)
    x = _input(conv, graph)
    added = graph.restored(node.inputs[3], node) if len(node.inputs) > 3 and node.inputs[3] else None
    channels = _output_channels(conv, x, added, graph)
    if isinstance(x, RestoredValue) and (channels is None or not _may_be_short(conv, x)):
        x = graph.padded(x)
    channels = conv.outputs if channels is None else channels
    if added is not None:
        added = graph.with_channels(added, channels)
    name = _add_node(conv, graph, x, added, channels)
    graph.set_restored(node.outputs[0], RestoredValue(name, channels, conv.outputs, _fill(node, added) or 0.0))


def _fill(node: Node, added: RestoredValue | None) -> float | None:
    """What channels without weights hold; None if that is not known."""
    return activated(str(node.attributes.get("activation", "") or ""), added.fill if added else 0.0, _parameters(node))


def _read(node: Node, graph: RestoredGraph) -> _Conv:
    weight = graph.graph.constant(node.inputs[1])
    bias = graph.graph.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if weight is None or (bias is None and len(node.inputs) > 2 and node.inputs[2]):
        raise InvalidGraph(f"{node.describe()}: weight and bias must be constants, as ONNX Runtime writes them")
    conv = _Conv(node, weight, bias, int(node.attributes.get("group", 1)), graph.block)
    shape, block = weight.shape, graph.block
    fits = len(shape) == 4 and shape[0] % block == 0 and (shape[1] < block or shape[1] % block == 0)
    if not fits or (bias is not None and bias.shape != (shape[0],)) or shape[0] % conv.groups:
        raise InvalidGraph(
            f"{node.describe()}: weight {list(shape)}, bias {list(bias.shape) if bias is not None else None} and group "
            f"{conv.groups} do not fit blocks of {block} channels: the weight must be (M, C / group, kH, kW), the bias (M,), "
            "M and C being whole blocks"
        )
    return conv


def _input(conv: _Conv, graph: RestoredGraph) -> RestoredValue | str:
    """The restored input, or the name of a plain one."""
    name = conv.node.inputs[0]
    if not conv.reads_blocks:
        graph.want_as_in_file([name])
        return name
    x = graph.restored(name, conv.node)
    if x.padded != conv.inputs * conv.groups:
        raise InvalidGraph(
            f"{conv.node.describe()}: input '{name}' has {x.padded} channels in blocks of {conv.block}, weight and group are for "
            f"{conv.inputs * conv.groups}"
        )
    return x


def _may_be_short(conv: _Conv, x: RestoredValue) -> bool:
    """Whether the input may do without the channels that fill blocks: they are zero, or have no weights."""
    if conv.groups > 1:
        return conv.is_depthwise
    return x.channels == x.padded or not x.fill or not has_weights_for(conv.weight, conv.block, x.channels)


def _output_channels(conv: _Conv, x: RestoredValue | str, added: RestoredValue | None, graph: RestoredGraph) -> int | None:
    """Output channels that are worth computing; None for all.

    Those left out are dropped by all readers, or hold the same number everywhere.
    """
    if conv.groups > 1 and not conv.is_depthwise:
        return None
    needed = _channels_read(conv.node.outputs[0], graph)
    if needed is None:
        fill = activated(
            str(conv.node.attributes.get("activation", "") or ""), added.fill if added else 0.0, _parameters(conv.node)
        )
        needed = None if fill is None else outputs_with_weights(conv.weight, conv.bias, conv.block)
    if needed is None:
        return None
    needed = max(needed, added.channels if added else 0)
    if conv.is_depthwise and isinstance(x, RestoredValue):
        return x.channels if needed <= x.channels else None
    return needed


def _channels_read(name: str, graph: RestoredGraph) -> int | None:
    """How many channels are read of a value whose only readers take it out of blocks; None for others."""
    readers = graph.graph.consumers(name)
    if not readers or graph.graph.is_output(name):
        return None
    if any(reader.domain != NCHWC or reader.op_type != "ReorderOutput" for reader in readers):
        return None
    return max(int(reader.attributes.get("channels", 0)) for reader in readers) or None


def _parameters(node: Node) -> dict[str, Any]:
    """What an activation is given, by the names of its operator's attributes."""
    names = ("min", "max") if node.attributes.get("activation") == "Clip" else ("alpha", "beta")
    return dict(zip(names, node.attributes.get("activation_params", None) or (), strict=False))


def _add_node(conv: _Conv, graph: RestoredGraph, x: RestoredValue | str, added: RestoredValue | None, channels: int) -> str:
    node, block = conv.node, conv.block
    inputs = x.channels if isinstance(x, RestoredValue) and conv.groups == 1 else conv.inputs
    shape = (channels, inputs, *conv.weight.shape[2:])
    in_blocks = conv.has_weights_in_blocks
    weight = graph.constant(
        plain_weight(conv.weight, block, shape, in_blocks=in_blocks), f"{node.inputs[1]}_nchw", node.inputs[1], in_blocks, shape
    )
    bias = ""
    if conv.bias is not None:
        bias = node.inputs[2]
        if channels < conv.outputs:
            bias = graph.constant(shortened(conv.bias, channels), f"{bias}_nchw", bias, channels)
    is_fused = added is not None or bool(node.attributes.get("activation"))
    names = (*_WINDOW_ATTRIBUTES, *_FUSED_ATTRIBUTES) if is_fused else _WINDOW_ATTRIBUTES
    attributes = {name: node.attributes[name] for name in names if name in node.attributes}
    attributes["group"] = channels if conv.is_depthwise else conv.groups
    return graph.add(
        "FusedConv" if is_fused else "Conv",
        [x.name if isinstance(x, RestoredValue) else x, weight, bias, added.name if added is not None else ""],
        graph.name_for(node.outputs[0], channels),
        attributes,
        like=node,
        domain=MICROSOFT if is_fused else "",
    )
