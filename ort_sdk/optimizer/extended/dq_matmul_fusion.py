"""Products of matrices that DequantizeLinear makes of constants, as products with the quantised matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from ort_sdk.api import InvalidArgument, TensorElementType
from ort_sdk.graph import Node
from ort_sdk.optimizer.nbits_constants import (
    DEQUANTIZE,
    DequantizedConstant,
    NBitsLayout,
    accuracy_level,
    bias_of,
    drop_added,
    is_plain_product,
    is_quantization_enabled,
    is_signed,
    read_constant,
    zero_of,
)
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match, operator_key
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["DQMatMulToMatMulNBits"]

BLOCK_SIZE_KEY = "session.qdq_matmulnbits_block_size"
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
PRODUCTS = ("MatMul", "Gemm")
MOST_LAYOUTS = 256
"""Kinds of matrices that are remembered."""
SCALE_TYPES = frozenset({TensorElementType.FLOAT, TensorElementType.FLOAT16})


_Product = tuple[Node, "Node | None"]
"""A MatMul or Gemm by a dequantised matrix, and a Transpose between the two if there is one."""


class DQMatMulToMatMulNBits(FusionPass):
    """DequantizeLinear → MatMul or Gemm becomes ``com.microsoft`` MatMulNBits, whose weight is derived when it is read.

    ONNX Runtime's rule of this name, on its conditions, but that the weight may be shared: all products that read a
    dequantised matrix become MatMulNBits over the same constants, or none. A Transpose between the two is allowed as well,
    if the blocks are then along K.
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
        products = _products(matcher, constant)
        layout = _layout(constant, matcher.context, is_transposed=products[0][1] is not None) if products else None
        if layout is None:
            return None
        for product, _ in products:
            if product.execution_provider != node.execution_provider or not is_plain_product(matcher, product, layout.size_n):
                return None
        return _replace(matcher, constant, layout, products)


def _products(matcher: GraphMatcher, constant: DequantizedConstant) -> list[_Product]:
    """All readers of the dequantised matrix, if all are products of the same kind; else none."""
    output = constant.node.outputs[0]
    readers = matcher.graph.consumers(output)
    if readers and readers[0].op_type == "Transpose":
        found = [product for reader in readers for product in _products_of_transposed(matcher, reader)]
    else:
        found = [_product(matcher, reader, output) for reader in readers]
    return [] if None in found else found  # type: ignore[return-value]


def _products_of_transposed(matcher: GraphMatcher, transpose: Node) -> list[_Product | None]:
    output = transpose.outputs[0]
    readers = matcher.graph.consumers(output)
    if transpose.op_type != "Transpose" or transpose.domain:
        return [None]
    if list(transpose.attributes.get("perm", (1, 0))) != [1, 0] or matcher.graph.is_output(output) or not readers:
        return [None]
    return [_product(matcher, reader, output, transpose) for reader in readers]


def _product(matcher: GraphMatcher, node: Node, matrix: str, transpose: Node | None = None) -> _Product | None:
    """A product whose second factor is the matrix, if it can become MatMulNBits."""
    if node.domain or node.op_type not in PRODUCTS or node.inputs[1] != matrix or node.inputs.count(matrix) != 1:
        return None
    graph = matcher.graph
    for reader in graph.consumers(node.outputs[0]):
        if reader.op_type == "QuantizeLinear":
            return None
    maker = graph.producer(node.inputs[0])
    return None if maker is not None and operator_key(maker) in DEQUANTIZE else (node, transpose)


def _layout(constant: DequantizedConstant, context: TransformerContext, *, is_transposed: bool) -> NBitsLayout | None:
    """How the constants of MatMulNBits come from the matrix, if the operator can tell them apart as DequantizeLinear does."""
    weight, scales, zero_points = constant.weight, constant.scales, constant.zero_points
    shape = weight.shape
    if len(shape) != 2:
        return None
    return _layout_of(
        weight.element_type,
        shape[::-1] if is_transposed else shape,
        scales.element_type,
        scales.shape,
        None if zero_points is None else zero_points.shape,
        constant.axis if not is_transposed else 1 - constant.axis,
        constant.block_size,
        constant.block_size or _chosen_block_size(context, shape[1 if is_transposed else 0]),
        is_transposed,
    )


@lru_cache(MOST_LAYOUTS)
def _layout_of(
    element_type: TensorElementType,
    sizes: tuple[int, int],
    scale_type: TensorElementType,
    scale_shape: tuple[int, ...],
    zero_point_shape: tuple[int, ...] | None,
    axis: int,
    source_block_size: int,
    block_size: int,
    is_transposed: bool,
) -> NBitsLayout | None:
    """``_layout`` of a matrix whose sizes are (K, N) and whose axis, 0 for K, is that of channels or blocks."""
    if element_type not in WEIGHT_TYPES or scale_type not in SCALE_TYPES or not all(sizes):
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


def _chosen_block_size(context: TransformerContext, size_k: int) -> int:
    """Block size for weights that are not quantised in blocks.

    Raises:
        InvalidArgument: the config's value is none of those allowed.
    """
    text = context.config.get(BLOCK_SIZE_KEY, "0")
    if text == "0":
        return DEFAULT_BLOCK_SIZE
    if text == "-1":
        fitting = [size for size in BLOCK_SIZES if size <= size_k] or [BLOCK_SIZES[0]]
        return min(fitting, key=lambda size: (-size_k % size, -size))
    if text not in map(str, BLOCK_SIZES):
        raise InvalidArgument(f"{BLOCK_SIZE_KEY} is {text!r}; allowed are 0 (for 32), -1 (as fits K best) and {BLOCK_SIZES}")
    return int(text)


def _replace(matcher: GraphMatcher, constant: DequantizedConstant, layout: NBitsLayout, products: Sequence[_Product]) -> bool:
    value, scale = constant.node.inputs[:2]
    zero_points, zero_points_name = constant.zero_points, constant.zero_points_name
    if zero_points is None and not is_signed(constant.weight.element_type):
        zero_points, zero_points_name = zero_of(constant.weight.element_type), "fused_DQ_MatMul_zero_point"
    before = len(matcher.graph.initializers)
    wanted = (f"{value}_T", f"{scale}_T", f"{zero_points_name}_T")
    names = layout.add_to(matcher.graph, wanted, constant.weight, constant.scales, zero_points)
    attributes = layout.attributes(accuracy_level(matcher.context))
    is_replaced = False
    for product in products:
        node = product[0]
        match = Match(node, *_members(matcher, constant, product, products))
        is_replaced |= matcher.fuse(match, "MatMulNBits", [node.inputs[0], *names, "", bias_of(node)], attributes)
    if not is_replaced:
        drop_added(matcher.graph, before)
    return is_replaced


def _members(matcher: GraphMatcher, constant: DequantizedConstant, product: _Product, products: Sequence[_Product]) -> list[Node]:
    """Nodes that go with a product because nothing else reads them; shared ones go when their last reader is gone."""
    node, transpose = product
    if len(products) == 1:
        return [constant.node] if transpose is None else [constant.node, transpose]
    return [] if transpose is None else matcher.without_shared([transpose], node)
