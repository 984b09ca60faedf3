"""MatMul and Gemm with weights that DequantizeLinear makes of constants, as MatMulNBits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ort_sdk.api import InvalidArgument, NodeArg, TensorElementType, find_schema, tensor_type
from ort_sdk.config_keys import QDQ_MATMULNBITS_BLOCK_SIZE
from ort_sdk.graph import Graph, Node
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match, operator_key
from ort_sdk.optimizer.transformer import TransformerContext

from .constants import (
    DEQUANTIZE,
    DequantizedConstant,
    NBitsLayout,
    accuracy_level,
    bias_of,
    drop_added,
    is_plain_matmul,
    is_quantization_enabled,
    is_signed,
    read_constant,
    zero_of,
)

__all__ = ["BLOCK_SIZES", "WEIGHT_TYPES", "DQMatMulToMatMulNBits", "enter_types", "is_replaceable", "is_swap"]

BLOCK_SIZES = (16, 32, 64, 128, 256)
DEFAULT_BLOCK_SIZE = 32
WEIGHT_TYPES = frozenset(
    {
        TensorElementType.INT2,
        TensorElementType.UINT2,
        TensorElementType.INT4,
        TensorElementType.UINT4,
        TensorElementType.INT8,
        TensorElementType.UINT8,
    }
)
MATMULS = ("MatMul", "Gemm")
MOST_LAYOUTS = 256
"""Kinds of matrices that are remembered."""
SCALE_TYPES = frozenset({TensorElementType.FLOAT, TensorElementType.FLOAT16})


_MatMul = tuple[Node, "Node | None"]
"""A MatMul or Gemm by a dequantized matrix, and a Transpose between the two if there is one."""


class DQMatMulToMatMulNBits(FusionPass):
    """DequantizeLinear → MatMul or Gemm becomes ``com.microsoft`` MatMulNBits, whose weight is derived when it is read.

    ONNX Runtime's rule of this name, on its conditions, but that the weight may be shared: all nodes that read a
    dequantized matrix become MatMulNBits over the same constants, or none. A Transpose between the two is allowed as well,
    if the blocks are then along K.

    It may run before types are inferred: what it must know is those of constants, which the node's other values share.
    """

    name = "DQMatMulToMatMulNBits"
    anchors = DEQUANTIZE

    def is_enabled(self, context: TransformerContext) -> bool:
        """Unless the config says otherwise."""
        return is_quantization_enabled(context)

    def fuse(self, matcher: GraphMatcher, node: Node) -> object:
        """See the class."""
        constant = read_constant(matcher, node)
        if constant is None:
            return None
        matmuls: list[_MatMul] = []
        if not _find_matmuls(matcher.graph, node.outputs[0], None, matmuls):
            return None
        layout = _layout(constant, matcher.context, is_transposed=matmuls[0][1] is not None)
        if layout is None:
            return None
        for matmul, _ in matmuls:
            if matmul.execution_provider != node.execution_provider or not is_plain_matmul(matcher, matmul, layout.size_n):
                return None
        return _replace(matcher, constant, layout, matmuls)


def _find_matmuls(graph: Graph, matrix: str, transpose: Node | None, found: list[_MatMul]) -> bool:
    """Whether all readers of a matrix, or of its transpose, are MatMul or Gemm of the same kind; they are added to ``found``."""
    readers = graph.consumers(matrix)
    is_first = transpose is None
    for reader in readers:
        if is_first and reader.op_type == "Transpose":
            if not is_swap(graph, reader) or not _find_matmuls(graph, reader.outputs[0], reader, found):
                return False
        elif is_replaceable(graph, reader, matrix):
            found.append((reader, transpose))
        else:
            return False
    return bool(readers) and (len(found) == 1 or len({each is None for _, each in found}) == 1)


def is_swap(graph: Graph, transpose: Node) -> bool:
    """Whether a Transpose swaps the axes of a matrix and makes no output of the graph."""
    is_swap = not transpose.domain and list(transpose.attributes.get("perm", (1, 0))) == [1, 0]
    return is_swap and not graph.is_output(transpose.outputs[0])


def is_replaceable(graph: Graph, node: Node, matrix: str) -> bool:
    """Whether a node is a MatMul or Gemm whose B is the matrix, and can become MatMulNBits."""
    inputs = node.inputs
    if node.op_type not in MATMULS or node.domain or inputs[1] != matrix or inputs.count(matrix) != 1:
        return False
    for reader in graph.consumers(node.outputs[0]):
        if reader.op_type == "QuantizeLinear":
            return False
    maker = graph.producer(inputs[0])
    return maker is None or maker.op_type != "DequantizeLinear" or operator_key(maker) not in DEQUANTIZE


def _layout(constant: DequantizedConstant, context: TransformerContext, *, is_transposed: bool) -> NBitsLayout | None:
    """How the constants of MatMulNBits come from the matrix, if the operator has a scale for each that DequantizeLinear has."""
    node, weight, scales, zero_points = constant.node, constant.weight, constant.scales, constant.zero_points
    shape = weight.shape
    if len(shape) != 2:
        return None
    return _layout_of(
        (node.domain, node.since_version),
        weight.element_type,
        shape[::-1] if is_transposed else shape,
        scales.element_type,
        scales.shape,
        None if zero_points is None else (zero_points.element_type, zero_points.shape),
        constant.axis if not is_transposed else 1 - constant.axis,
        constant.block_size,
        constant.block_size or _chosen_block_size(context, shape[1 if is_transposed else 0]),
        is_transposed,
    )


@lru_cache(MOST_LAYOUTS)
def _layout_of(
    operator: tuple[str, int],
    element_type: TensorElementType,
    sizes: tuple[int, int],
    scale_type: TensorElementType,
    scale_shape: tuple[int, ...],
    zero_points: tuple[TensorElementType, tuple[int, ...]] | None,
    axis: int,
    source_block_size: int,
    block_size: int,
    is_transposed: bool,
) -> NBitsLayout | None:
    """``_layout`` of a matrix whose sizes are (K, N) and whose axis, 0 for K, is that of channels or blocks.

    ``operator`` is domain and version of DequantizeLinear.
    """
    zero_point_type, zero_point_shape = (element_type, None) if zero_points is None else zero_points
    if element_type not in WEIGHT_TYPES or scale_type not in SCALE_TYPES or not all(sizes):
        return None
    if zero_point_type is not element_type or not _are_types_allowed(*operator, element_type, scale_type):
        return None
    size_k, size_n = sizes
    if source_block_size:
        if block_size not in BLOCK_SIZES or axis != 0:
            return None
        blocks = -(-size_k // block_size)
        expected: tuple[int, ...] = (size_n, blocks) if is_transposed else (blocks, size_n)
    else:
        expected = (size_n,) if scale_shape else ()
        if scale_shape and axis != 1:
            return None
    if scale_shape != expected or (zero_point_shape is not None and zero_point_shape != expected):
        return None
    default_rank = (
        None if is_signed(element_type) else 0
    )  # of a scalar zero, where DequantizeLinear's default is not the operator's
    return NBitsLayout(
        size_k,
        size_n,
        block_size,
        element_type,
        scale_type,
        len(scale_shape),
        default_rank if zero_point_shape is None else len(zero_point_shape),
        is_transposed=is_transposed,
    )


def _are_types_allowed(domain: str, version: int, weight: TensorElementType, scales: TensorElementType) -> bool:
    """Whether DequantizeLinear takes constants of these types: what it refuses is left, so that type inference refuses it."""
    schema = find_schema("DequantizeLinear", version, domain)
    allowed = [() if schema is None else schema.allowed_types(schema.inputs[index].type_str) for index in (0, 1)]
    return tensor_type(weight) in allowed[0] and tensor_type(scales) in allowed[1]


def _chosen_block_size(context: TransformerContext, size_k: int) -> int:
    """Block size for weights that are not quantized in blocks.

    Raises:
        InvalidArgument: the config's value is none of those allowed.
    """
    text = context.config.get(QDQ_MATMULNBITS_BLOCK_SIZE, "0")
    if text == "0":
        return DEFAULT_BLOCK_SIZE
    if text == "-1":
        fitting = [size for size in BLOCK_SIZES if size <= size_k] or [BLOCK_SIZES[0]]
        return min(fitting, key=lambda size: (-size_k % size, -size))
    if text not in map(str, BLOCK_SIZES):
        raise InvalidArgument(
            f"{QDQ_MATMULNBITS_BLOCK_SIZE} is {text!r}; allowed are 0 (for 32), -1 (as fits K best) and {BLOCK_SIZES}"
        )
    return int(text)


def _replace(matcher: GraphMatcher, constant: DequantizedConstant, layout: NBitsLayout, matmuls: Sequence[_MatMul]) -> bool:
    sources, zero_points = constant.node.inputs, constant.zero_points
    zero_points_name = sources[2] if zero_points is not None else ""
    if zero_points is None and not is_signed(constant.weight.element_type):
        zero_points, zero_points_name = zero_of(constant.weight.element_type), "fused_DQ_MatMul_zero_point"
    before = len(matcher.graph.initializers)
    wanted = (f"{sources[0]}_T", f"{sources[1]}_T", f"{zero_points_name}_T")
    names = layout.add_to(matcher.graph, wanted, constant.weight, constant.scales, zero_points)
    attributes = layout.attributes(accuracy_level(matcher.context))
    is_replaced = False
    for matmul in matmuls:
        node = matmul[0]
        enter_types(matcher.graph, node, layout.type)
        bias = bias_of(node)
        inputs = [node.inputs[0], *names, "", bias] if bias else [node.inputs[0], *names]
        new = matcher.new_node(node, "MatMulNBits", inputs, attributes)
        if new is None:
            break
        known = [matcher.graph.values.get(name) for name in (node.inputs[0], bias, node.outputs[0])]
        kind = (layout, node.execution_provider, *[None if argument is None else argument.type for argument in known])
        is_replaced |= matcher.replace(Match(node, *_members(matcher, constant, matmul, matmuls)), new, kind)
    if not is_replaced:
        drop_added(matcher.graph, before)
    return is_replaced


def enter_types(graph: Graph, matmul: Node, type_string: str) -> None:
    """Set the type of the values of a MatMul, by the type of the scales, if that is not known yet."""
    values = graph.values
    name, output = matmul.inputs[0], matmul.outputs[0]
    if output not in values:
        values[output] = NodeArg(output, type_string)
    if name not in values and graph.producer(name) is not None:
        values[name] = NodeArg(name, type_string)


def _members(matcher: GraphMatcher, constant: DequantizedConstant, matmul: _MatMul, matmuls: Sequence[_MatMul]) -> list[Node]:
    """Nodes that go with a MatMul because nothing else reads them; shared ones go when their last reader is gone."""
    node, transpose = matmul
    if len(matmuls) == 1:
        return [constant.node] if transpose is None else [constant.node, transpose]
    return [] if transpose is None else matcher.without_shared([transpose], node)
