"""The patterns of ``DQMatMulNBitsFusion``."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import Tensor, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Node
from ort_sdk.optimizer.extended.nbits.constants import NBitsLayout, accuracy_level, bias_of, drop_added, is_plain_matmul, zero_of
from ort_sdk.optimizer.pattern import GraphMatcher, Match

__all__ = ["fuse_product"]

LEAST_BLOCK = 16
DEFAULT_ZERO = 8


_Tensors = tuple[Tensor, Tensor, "Tensor | None"]
"""Weight, scales and zero points, if there are any."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Nodes from DequantizeLinear to just before the MatMul, and the weight they make."""

    nodes: tuple[Node, ...]
    layout: NBitsLayout
    weight: Tensor
    scales: Tensor
    zero_points: Tensor | None
    """None: the operator's default."""


def fuse_product(matcher: GraphMatcher, node: Node) -> bool:
    """Replace a MatMul or Gemm and what makes its weight by MatMulNBits, if they are one of the two patterns."""
    found = _direct(matcher, node.inputs[1]) or _reshaped(matcher, node.inputs[1])
    return found is not None and _is_product(matcher, node, found) and _replace(matcher, node, found)


def _direct(matcher: GraphMatcher, name: str) -> _Found | None:
    """DequantizeLinear of a [K, N] weight."""
    dequantize = matcher.sole_maker(name, "DequantizeLinear")
    if dequantize is None:
        return None
    tensors = _tensors(matcher, dequantize, axis=0, rank=2)
    if tensors is None:
        return None
    weight, scales, _ = tensors
    (size_k, size_n), block_size = weight.shape, dequantize.attributes["block_size"]
    if size_k % block_size or tuple(scales.shape) != (size_k // block_size, size_n):
        return None
    return _found((dequantize,), (size_k, size_n, block_size), tensors)


def _reshaped(matcher: GraphMatcher, name: str) -> _Found | None:
    """DequantizeLinear of a [N, blocks, block size] weight → Reshape to [N, K] → Transpose (→ Cast to the same type)."""
    cast = matcher.sole_maker(name, "Cast")
    if cast is not None and not _keeps_type(matcher, cast):
        return None
    transpose = matcher.sole_maker(name if cast is None else cast.inputs[0], "Transpose")
    reshape = None if transpose is None else matcher.sole_maker(transpose.inputs[0], "Reshape")
    dequantize = None if reshape is None else matcher.sole_maker(reshape.inputs[0], "DequantizeLinear")
    if transpose is None or reshape is None or dequantize is None:
        return None
    tensors = _tensors(matcher, dequantize, axis=2, rank=3)
    if tensors is None or list(transpose.attributes.get("perm", (1, 0))) != [1, 0]:
        return None
    weight, scales, _ = tensors
    size_n, blocks, block_size = weight.shape
    is_whole = dequantize.attributes["block_size"] == block_size and tuple(scales.shape) == (size_n, blocks, 1)
    if not is_whole or not _reshapes_to(matcher, reshape, size_n, blocks * block_size):
        return None
    nodes = (dequantize, reshape, transpose) if cast is None else (dequantize, reshape, transpose, cast)
    return _found(nodes, (blocks * block_size, size_n, block_size), tensors, is_transposed=True)


def _found(nodes: tuple[Node, ...], sizes: tuple[int, int, int], tensors: _Tensors, *, is_transposed: bool = False) -> _Found:
    weight, scales, zero_points = tensors
    if zero_points is None:
        zero_points = zero_of(weight.element_type)
    elif _is_default(zero_points):
        zero_points = None
    types, rank = (weight.element_type, scales.element_type), len(scales.shape)
    zero_point_rank = None if zero_points is None else len(zero_points.shape)
    layout = NBitsLayout(*sizes, *types, rank, zero_point_rank, is_transposed=is_transposed)
    return _Found(nodes, layout, weight, scales, zero_points)


def _tensors(matcher: GraphMatcher, dequantize: Node, *, axis: int, rank: int) -> _Tensors | None:
    """Weight, scales and zero points of a DequantizeLinear of constants in blocks along an axis."""
    value, scale, zero_point = [*dequantize.inputs, ""][:3]
    weight, scales = matcher.graph.constant(value), matcher.graph.constant(scale)
    zero_points = matcher.graph.constant(zero_point) if zero_point else None
    block_size = dequantize.attributes.get("block_size", 0)
    if weight is None or scales is None or (zero_point and zero_points is None) or dequantize.attributes.get("output_dtype", 0):
        return None
    if weight.element_type is not TensorElementType.UINT4 or len(weight.shape) != rank or 0 in weight.shape:
        return None
    if dequantize.attributes.get("axis", 1) % rank != axis or block_size < LEAST_BLOCK or block_size & (block_size - 1):
        return None
    fits = zero_points is None or tuple(zero_points.shape) == tuple(scales.shape)
    return (weight, scales, zero_points) if fits else None


def _keeps_type(matcher: GraphMatcher, cast: Node) -> bool:
    return matcher.argument(cast.inputs[0]).element_type == TensorElementType(cast.attributes["to"])


def _reshapes_to(matcher: GraphMatcher, reshape: Node, size_n: int, size_k: int) -> bool:
    """Whether a Reshape of [N, …, …] gives [N, K]; 0 and -1 in its target are allowed."""
    target = matcher.constant(reshape.inputs[1])
    if target is None or target.shape != (2,) or reshape.attributes.get("allowzero", 0):
        return False
    rows, columns = map(int, target)
    return rows in {size_n, 0, -1} and columns in {size_k, -1} and (rows, columns) != (-1, -1)


def _is_product(matcher: GraphMatcher, node: Node, found: _Found) -> bool:
    a, output = matcher.argument(node.inputs[0]), matcher.argument(node.outputs[0])
    if a.element_type is not found.scales.element_type or node.inputs.count(node.inputs[1]) != 1:
        return False
    if a.shape and isinstance(a.shape[-1], int) and a.shape[-1] != found.layout.size_k:
        return False
    if output.shape and isinstance(output.shape[-1], int) and output.shape[-1] != found.layout.size_n:
        return False
    return is_plain_matmul(matcher, node, found.layout.size_n)


def _replace(matcher: GraphMatcher, node: Node, found: _Found) -> bool:
    graph = matcher.graph
    dequantize = found.nodes[0]
    names = [f"{name}_mnb" for name in dequantize.inputs]
    wanted = (names[0], names[1], names[2] if len(names) > 2 else f"{names[0]}_zero_point")
    before = len(graph.initializers)
    constants = found.layout.add_to(graph, wanted, found.weight, found.scales, found.zero_points)
    inputs = [node.inputs[0], *constants, "", bias_of(node)]
    attributes = found.layout.attributes(accuracy_level(matcher.context))
    new = matcher.new_node(node, "MatMulNBits", inputs, attributes)
    if new is not None and matcher.context.is_as_preferred(new, [node, *found.nodes], graph):
        return matcher.replace(Match(node, *found.nodes), new)
    drop_added(graph, before)
    return False


def _is_default(zero_points: Tensor) -> bool:
    """Whether all zero points are those MatMulNBits takes where none are given."""
    packed = zero_points.packed()
    whole = packed if int(np.prod(zero_points.shape)) % 2 == 0 else packed[:-1]
    last_fits = whole is packed or int(packed[-1] & 15) == DEFAULT_ZERO
    return last_fits and bool((whole == DEFAULT_ZERO * 0x11).all())
