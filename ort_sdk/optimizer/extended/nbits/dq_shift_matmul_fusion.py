"""MatMul with weights that DequantizeLinear makes of constants in blocks, with a number added to each block."""

from __future__ import annotations

from typing import NamedTuple

from ort_sdk.api import Tensor, TensorElementType
from ort_sdk.graph import Graph, Node
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match
from ort_sdk.optimizer.transformer import TransformerContext

from .constants import (
    DEQUANTIZE,
    DequantizedConstant,
    NBitsLayout,
    Shifts,
    accuracy_level,
    bias_of,
    drop_added,
    is_plain_matmul,
    is_quantization_enabled,
    read_constant,
)
from .dq_matmul_fusion import BLOCK_SIZES, WEIGHT_TYPES, enter_types, is_replaceable, is_swap

__all__ = ["DQShiftMatMulToMatMulNBits"]


class DQShiftMatMulToMatMulNBits(FusionPass):
    """DequantizeLinear → Add or Sub of a number per block → Reshape → Transpose → MatMul or Gemm becomes MatMulNBits.

    Formats that keep a minimum of each block (Q4_1, Q4_K) are exported so: the weight is [N, k_blocks, block size], and scales
    and minima are [N, k_blocks, 1]. A minimum m beside a scale s is a zero point of -m / s, which ``com.microsoft`` MatMulNBits
    takes as float32. All constants are derived when they are read.
    """

    name = "DQShiftMatMulToMatMulNBits"
    anchors = DEQUANTIZE

    def is_enabled(self, context: TransformerContext) -> bool:
        """Unless the config says otherwise."""
        return is_quantization_enabled(context)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        constant = read_constant(matcher, node)
        layout = None if constant is None else _layout(constant)
        if constant is None or layout is None:
            return None
        shifted = _shifted(matcher, constant)
        if shifted is None:
            return None
        chain = _matrix(matcher, shifted.node, constant)
        if chain is None:
            return None
        matrix = chain[-1].outputs[0]
        matmuls = matcher.graph.consumers(matrix)
        if not matmuls or matcher.graph.is_output(matrix):
            return None
        for matmul in matmuls:
            is_of_kind = is_replaceable(matcher.graph, matmul, matrix) and is_plain_matmul(matcher, matmul, layout.size_n)
            if not is_of_kind or matmul.execution_provider != node.execution_provider:
                return None
        return _replace(matcher, constant, layout, shifted, [node, shifted.node, *chain], matmuls)


class _Shifted(NamedTuple):
    """The Add or Sub."""

    node: Node
    name: str
    """Of what is added."""
    shifts: Shifts


def _layout(constant: DequantizedConstant) -> NBitsLayout | None:
    """How MatMulNBits has the weight; None unless it is [N, k_blocks, block size]."""
    weight, scales, zero_points = constant.weight, constant.scales, constant.zero_points
    if len(weight.shape) != 3 or not all(weight.shape) or weight.element_type not in WEIGHT_TYPES:
        return None
    size_n, blocks, block_size = weight.shape
    of_blocks = (size_n, blocks, 1)
    if scales.element_type is not TensorElementType.FLOAT or tuple(scales.shape) != of_blocks:
        return None
    if zero_points is not None and (tuple(zero_points.shape) != of_blocks or zero_points.element_type is not weight.element_type):
        return None
    if constant.axis != 2 or constant.block_size != block_size or block_size not in BLOCK_SIZES:
        return None
    types = (weight.element_type, scales.element_type)
    return NBitsLayout(blocks * block_size, size_n, block_size, *types, len(of_blocks), None, is_transposed=True)


def _sole_reader(graph: Graph, node: Node, *op_types: str) -> Node | None:
    """The only reader of a node's output, if it is one of these operators of ONNX and reads it once."""
    (name,) = node.outputs
    readers = graph.consumers(name)
    if len(readers) != 1 or graph.is_output(name) or readers[0].inputs.count(name) != 1:
        return None
    return readers[0] if readers[0].op_type in op_types and not readers[0].domain else None


def _shifted(matcher: GraphMatcher, constant: DequantizedConstant) -> _Shifted | None:
    node = _sole_reader(matcher.graph, constant.node, "Add", "Sub")
    if node is None or (node.op_type == "Sub" and node.inputs[0] != constant.output):
        return None
    name = node.inputs[1] if node.inputs[0] == constant.output else node.inputs[0]
    tensor: Tensor | None = matcher.tensor(name)
    if tensor is None or tensor.element_type is not constant.scales.element_type:
        return None
    if tuple(tensor.shape) != tuple(constant.scales.shape):
        return None
    return _Shifted(node, name, Shifts(tensor, -1 if node.op_type == "Sub" else 1))


def _matrix(matcher: GraphMatcher, shifted: Node, constant: DequantizedConstant) -> list[Node] | None:
    """The Reshape to [N, K] and the Transpose after it."""
    graph = matcher.graph
    size_n, blocks, block_size = constant.weight.shape
    reshape = _sole_reader(graph, shifted, "Reshape")
    if reshape is None or reshape.inputs[0] != shifted.outputs[0]:
        return None
    target = matcher.constant(reshape.inputs[1])
    if target is None or target.shape != (2,) or reshape.attributes.get("allowzero", 0):
        return None
    is_matrix = _gives(target.tolist(), size_n, blocks * block_size)
    transpose = _sole_reader(graph, reshape, "Transpose") if is_matrix else None
    return None if transpose is None or not is_swap(graph, transpose) else [reshape, transpose]


def _gives(target: list[int], size_n: int, size_k: int) -> bool:
    """Whether a Reshape's target makes [N, K] of [N, ..., ...]."""
    rows, columns = target
    return rows in {size_n, 0, -1} and columns in {size_k, -1} and (rows, columns) != (-1, -1)


def _replace(
    matcher: GraphMatcher,
    constant: DequantizedConstant,
    layout: NBitsLayout,
    shifted: _Shifted,
    chain: list[Node],
    matmuls: list[Node],
) -> bool:
    graph, sources = matcher.graph, constant.node.inputs
    before, wanted = len(graph.initializers), (f"{sources[0]}_T", f"{sources[1]}_T", f"{shifted.name}_zero_points")
    names = layout.add_shifted_to(graph, wanted, constant.weight, constant.scales, shifted.shifts, constant.zero_points)
    attributes, is_replaced = layout.attributes(accuracy_level(matcher.context)), False
    for node in matmuls:
        enter_types(graph, node, layout.type)
        bias = bias_of(node)
        new = matcher.new_node(node, "MatMulNBits", [node.inputs[0], *names, "", bias], attributes)
        if new is None:
            break
        is_replaced |= matcher.replace(Match(node, *(chain if len(matmuls) == 1 else ())), new)
    if not is_replaced:
        drop_added(graph, before)
    return is_replaced
