"""How many channels a block has: 8, or 16 where the machine that wrote the file has AVX-512F or is an ARM64.

The file does not say it, but shapes do: channels are rounded up to whole blocks, and a convolution of fewer channels than
a block reads plain NCHW. Shapes that fit both sizes leave the size of ONNX Runtime on this machine, which is what it takes
for any file (``MlasNchwcGetBlockSize``).
"""

from __future__ import annotations

import functools
import importlib
import platform
from collections.abc import Iterable, Iterator

from ort_sdk.api import InvalidGraph
from ort_sdk.graph import Graph, Node

from .domain import NCHWC

__all__ = ["block_size_of", "machine_block_size"]

SIZES = (8, 16)
_ARM64 = ("aarch64", "arm64")


@functools.cache
def machine_block_size() -> int:
    """The size ONNX Runtime takes on this machine."""
    features = getattr(importlib.import_module("numpy._core._multiarray_umath"), "__cpu_features__", {})
    return 16 if features.get("AVX512F") or platform.machine().lower() in _ARM64 else 8


def block_size_of(graphs: Iterable[Graph]) -> int:
    """The size of the blocks of a model: the one its shapes allow, this machine's if they allow both.

    Args:
        graphs: main graph and bodies, shapes inferred.

    Raises:
        InvalidGraph: the shapes allow neither.
    """
    allowed = set(SIZES)
    for graph in graphs:
        for node in graph.nodes:
            left = allowed & _allowed_by(node, graph)
            if not left:
                raise InvalidGraph(
                    f"{node.describe()}: its channels are in no blocks of {' or '.join(map(str, sorted(allowed)))}, which the "
                    "nodes before it are in; the file was changed after ONNX Runtime wrote it, or is damaged"
                )
            allowed = left
    return allowed.pop() if len(allowed) == 1 else machine_block_size()


def _allowed_by(node: Node, graph: Graph) -> set[int]:
    if node.domain == NCHWC:
        return {size for size in SIZES if all(_fits(node, graph, size))}
    target = graph.constant(node.inputs[1]) if node.op_type == "Reshape" and not node.domain else None
    if target is not None and target.shape == (5,) and _makes_blocks(graph.producer(node.inputs[0])):
        return {int(target.numpy()[-1])}
    return set(SIZES)


def _fits(node: Node, graph: Graph, block: int) -> Iterator[bool]:
    """Whether each of the things known of a node is possible with a size of blocks."""
    read, made = _channels(graph, node.inputs[0], node), _channels(graph, node.outputs[0], node)
    if node.op_type == "Conv":
        yield from _conv_fits(node, graph, block)
    elif node.op_type == "ReorderOutput":
        yield _are(read, node.attributes.get("channels") or made, block)
    elif node.op_type == "ReorderInput":
        yield _are(made, read, block)
    else:
        yield read is None or read % block == 0


def _are(padded: int | None, channels: int | None, block: int) -> bool:
    """Whether a number of channels may be another one rounded up to whole blocks."""
    return padded is None or channels is None or padded == -(-channels // block) * block


def _conv_fits(node: Node, graph: Graph, block: int) -> Iterator[bool]:
    outputs, inputs = (graph.node_arg(node.inputs[1]).shape or (None, None))[:2]
    if not isinstance(outputs, int) or not isinstance(inputs, int):
        return
    yield outputs % block == 0
    yield inputs < block or inputs % block == 0
    if node.attributes.get("group", 1) == 1:
        if _makes_blocks(graph.producer(node.inputs[0])):
            yield inputs >= block
        else:
            # Blocks of plain data would be made by a ReorderInput; many inputs may come in blocks from a node of ONNX's.
            yield inputs < block or inputs >= max(SIZES)


def _makes_blocks(node: Node | None) -> bool:
    return node is not None and node.domain == NCHWC and node.op_type != "ReorderOutput"


def _channels(graph: Graph, name: str, node: Node) -> int | None:
    shape = graph.node_arg(name).shape
    is_last = node.op_type.startswith("Reorder") and node.attributes.get("channels_last", 0)
    plain = node.inputs[0] if node.op_type == "ReorderInput" else node.outputs[0]
    axis = -1 if is_last and name == plain else 1
    size = shape[axis] if shape is not None and len(shape) == 4 else None
    return size if isinstance(size, int) else None
