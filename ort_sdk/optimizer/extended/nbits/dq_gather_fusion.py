"""Rows gathered from a table that DequantizeLinear makes of a constant, as rows dequantized after they are gathered."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.derived_tensor import DerivedTensor, StreamedTensor
from ort_sdk.opset.contrib.matmul_nbits_layout import DATA_FROM_INT8
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match
from ort_sdk.optimizer.transformer import TransformerContext

from .constants import (
    DEQUANTIZE,
    DequantizedConstant,
    derived_constant,
    drop_added,
    is_quantization_enabled,
    read_constant,
    zero_of,
)
from .packing import packed_rows

__all__ = ["DQGatherToGatherBlockQuantized"]

LEAST_BLOCK = 16
INT8, UINT8 = TensorElementType.INT8, TensorElementType.UINT8
NIBBLES = frozenset({TensorElementType.INT4, TensorElementType.UINT4})
SCALE_TYPES = frozenset({TensorElementType.FLOAT, TensorElementType.FLOAT16, TensorElementType.BFLOAT16})


@dataclass(frozen=True, slots=True)
class _Blocks:
    """How GatherBlockQuantized is to read a table."""

    axis: int
    size: int
    shape: tuple[int, ...]
    """Of scales and zero points."""


class DQGatherToGatherBlockQuantized(FusionPass):
    """DequantizeLinear → Gather becomes ``com.microsoft`` GatherBlockQuantized, which reads the quantized table in place.

    For tables of 4 and 8 bits with scales per block, per channel of a matrix, or per tensor. What is gathered is the same,
    bit by bit; an index outside the table, which Gather refuses, gives zeros.
    """

    name = "DQGatherToGatherBlockQuantized"
    anchors = DEQUANTIZE

    def is_enabled(self, context: TransformerContext) -> bool:
        """Unless the config says otherwise."""
        return is_quantization_enabled(context)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        table = read_constant(matcher, node)
        blocks = None if table is None else _blocks(table)
        if table is None or blocks is None:
            return None
        readers = [
            reader
            for reader in matcher.graph.consumers(table.output)
            if reader.op_type == "Gather" and not reader.domain and _is_gatherable(table, reader)
        ]
        return [_replace(matcher, table, blocks, reader) for reader in readers]


def _is_gatherable(table: DequantizedConstant, gather: Node) -> bool:
    """8-bit tables are gathered along their first axis only, as the operator says."""
    along = gather.attributes.get("axis", 0) % len(table.weight.shape)
    return gather.inputs[0] == table.output and (along == 0 or table.weight.element_type in NIBBLES)


def _blocks(table: DequantizedConstant) -> _Blocks | None:
    """Blocks that say what a table's scales say; None if there are none."""
    shape = tuple(table.weight.shape)
    types_fit = table.weight.element_type in NIBBLES | {INT8, UINT8} and table.scales.element_type in SCALE_TYPES
    if not types_fit or len(shape) < 2 or 0 in shape:
        return None
    blocks = _given_blocks(table, shape) if table.block_size else _whole_blocks(table, shape)
    if blocks is not None and blocks.axis != len(shape) - 1 and table.weight.element_type not in NIBBLES:
        return None  # ONNX Runtime's kernel takes no bytes with blocks along another axis than the last
    if blocks is None or table.zero_points is None or table.zero_points.shape == table.scales.shape:
        return blocks
    return None


def _given_blocks(table: DequantizedConstant, shape: tuple[int, ...]) -> _Blocks | None:
    axis, size = table.axis, table.block_size
    if size < LEAST_BLOCK or size & (size - 1):
        return None
    blocked = (*shape[:axis], -(-shape[axis] // size), *shape[axis + 1 :])
    return _Blocks(axis, size, blocked) if tuple(table.scales.shape) == blocked else None


def _whole_blocks(table: DequantizedConstant, shape: tuple[int, ...]) -> _Blocks | None:
    """One block along the last axis for a table with one scale, along the other axis for one per channel of a matrix."""
    scales = tuple(table.scales.shape)
    axis = len(shape) - 1
    if scales not in {(), (1,)}:
        if len(shape) != 2 or scales != (shape[table.axis],):
            return None
        axis = 1 - table.axis
    size = max(LEAST_BLOCK, 1 << (shape[axis] - 1).bit_length())
    return _Blocks(axis, size, (*shape[:axis], 1, *shape[axis + 1 :]))


def _replace(matcher: GraphMatcher, table: DequantizedConstant, blocks: _Blocks, gather: Node) -> bool:
    graph, element_type = matcher.graph, table.weight.element_type
    value, scales = table.node.inputs[:2]
    zero_points = table.zero_points
    before = len(graph.initializers)
    if element_type is INT8:
        value = derived_constant(graph, f"{value}_raised", _raised(table.weight, tuple(table.weight.shape)))
    if not table.block_size:
        scales = derived_constant(graph, f"{scales}_blocks", _spread(table.scales, blocks.shape))
    attributes = {
        "gather_axis": gather.attributes.get("axis", 0) % len(table.weight.shape),
        "quantize_axis": blocks.axis,
        "block_size": blocks.size,
        "bits": element_type.bit_width,
    }
    inputs = [value, gather.inputs[1], scales, _zero_points(graph, table, zero_points, blocks)]
    members = matcher.without_shared([table.node], gather)
    is_replaced = matcher.fuse(Match(gather, *members), "GatherBlockQuantized", inputs, attributes)
    if not is_replaced:
        drop_added(graph, before)
    return is_replaced


def _zero_points(graph: Graph, table: DequantizedConstant, zero_points: Tensor | None, blocks: _Blocks) -> str:
    """Name of the zero points; empty where there are none and the operator takes 0 for them."""
    element_type, name = table.weight.element_type, table.zero_points_name
    if zero_points is None:
        if element_type in NIBBLES:
            return ""
        zero_points, name = zero_of(element_type), f"{table.node.inputs[0]}_zero_point"
    elif table.block_size and element_type is not INT8:
        return name
    if element_type is INT8:
        shape = tuple(zero_points.shape)
        raised = _raised(zero_points, shape)
        zero_points = raised if shape == blocks.shape else _spread(raised, blocks.shape)
    else:
        zero_points = _spread(zero_points, blocks.shape)
    return derived_constant(graph, f"{name}_blocks", zero_points)


def _raised(source: Tensor, shape: tuple[int, ...]) -> DerivedTensor:
    """Signed bytes as unsigned ones, 128 more each."""
    size = source.nbytes
    return StreamedTensor(
        DATA_FROM_INT8, UINT8, shape, [source],
        lambda read: packed_rows(read.packed(), 8, size, 1, 1, is_signed=True),
    )  # fmt: skip


def _spread(source: Tensor, shape: tuple[int, ...]) -> DerivedTensor:
    """One number for all blocks, or one for each of a matrix's channels, seen at every block."""

    def compute(source: Tensor) -> HostArray:
        values = source.numpy().reshape(-1)
        laid_out = values.reshape(shape) if values.size == int(np.prod(shape)) else values.reshape((1,) * len(shape))
        return np.broadcast_to(laid_out, shape)

    return DerivedTensor(f"spread over blocks {list(shape)}", source.element_type, shape, [source], compute)
