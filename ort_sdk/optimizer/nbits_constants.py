"""MatMulNBits' constants derived from DequantizeLinear's: computed when somebody reads them, nothing before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, partial

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, Tensor, TensorElementType
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.derived_tensor import DerivedTensor, StreamedTensor
from ort_sdk.graph.editing import add_constant
from ort_sdk.graph.tensor import ArrayTensor, unpack_elements
from ort_sdk.opset.contrib.matmul_nbits_layout import (
    SCALES_FROM_DEQUANTIZE_LINEAR,
    WEIGHT_FROM_DEQUANTIZE_LINEAR,
    ZERO_POINTS_FROM_DEQUANTIZE_LINEAR,
)

from .pattern import GraphMatcher
from .transformer import TransformerContext

__all__ = [
    "NBitsConstants",
    "NBitsWeight",
    "accuracy_level",
    "bias_of",
    "derived_constant",
    "drop_added",
    "is_plain_product",
    "is_signed",
    "zero_of",
]

ACCURACY_KEY = "session.qdq_matmulnbits_accuracy_level"
DEFAULT_ACCURACY = "4"
TOLERANCE = 1e-6
"""How far the factors of a Gemm may be from 1."""
UINT8 = TensorElementType.UINT8

_SIGNED = frozenset(element_type for element_type in TensorElementType if element_type.onnx_name.startswith("int"))

_REPEATED = {2: 0x55, 4: 0x11, 8: 1}
"""Bits → the byte that repeats an element in every place of a byte, by multiplication."""


def accuracy_level(context: TransformerContext) -> int:
    """What the session's config says of MatMulNBits nodes the optimizer makes.

    Raises:
        InvalidArgument: it is not 0 to 4.
    """
    text = context.config.get(ACCURACY_KEY, DEFAULT_ACCURACY)
    if text not in {"0", "1", "2", "3", "4"}:
        raise InvalidArgument(f"{ACCURACY_KEY} is {text!r}; allowed are 0 (none), 1 (float32), 2, 3 (half) and 4 (int8)")
    return int(text)


def is_signed(element_type: TensorElementType) -> bool:
    """Whether a type of integers has negative ones."""
    return element_type in _SIGNED


@cache
def zero_of(element_type: TensorElementType) -> Tensor:
    """The scalar 0 that stands for zero points that are not given."""
    return ArrayTensor(np.zeros((), element_type.numpy_dtype))


NBitsConstants = tuple[str, str, str]
"""Names of the constant inputs of a MatMulNBits node: weight, scales, and zero points (empty for the operator's default)."""


class NBitsWeight:
    """A quantised matrix that MatMulNBits can multiply by.

    With ``is_transposed`` the tensors are laid out as MatMulNBits wants them but for signs and padding: the weight [N, K] or
    [N, k_blocks, block_size], scales and zero points [N, k_blocks], [N, k_blocks, 1], [N] or []. Else they are
    DequantizeLinear's for a [K, N] matrix.
    """

    __slots__ = (
        "_layout",
        "bits",
        "block_size",
        "blocks",
        "is_transposed",
        "scales",
        "size_k",
        "size_n",
        "weight",
        "zero_points",
    )

    def __init__(
        self,
        size_k: int,
        size_n: int,
        block_size: int,
        weight: Tensor,
        scales: Tensor,
        zero_points: Tensor | None,
        *,
        is_transposed: bool = False,
    ) -> None:
        self.size_k = size_k
        self.size_n = size_n
        self.block_size = block_size
        self.weight = weight
        self.scales = scales
        self.zero_points = zero_points
        self.is_transposed = is_transposed
        self.bits = bits = weight.element_type.bit_width
        """Bits of an element."""
        self.blocks = -(-size_k // block_size)
        """Blocks along K."""
        self._layout = f"{'transposed ' if is_transposed else ''}K={size_k} N={size_n} bits={bits} block_size={block_size}"

    def attributes(self, accuracy: int) -> dict[str, int]:
        """Attributes of the MatMulNBits node."""
        size = {"K": self.size_k, "N": self.size_n, "bits": self.bits, "block_size": self.block_size}
        return {**size, "accuracy_level": accuracy}

    def add_to(self, graph: Graph, names: NBitsConstants, *, has_zero_points: bool = True) -> NBitsConstants:
        """Add the constants to a graph, unless it has them.

        Args:
            graph: changed.
            names: those wanted; that of zero points is not used where there are none.
            has_zero_points: False leaves them out because they are the operator's default.
        """
        weight, scales, wanted = names
        zero_points = self._zero_points() if has_zero_points else None
        return (
            derived_constant(graph, weight, self._weight()),
            derived_constant(graph, scales, self._scales()),
            "" if zero_points is None else derived_constant(graph, wanted, zero_points),
        )

    def _text(self, start: str) -> str:
        return f"{start} {self._layout}"

    def _weight(self) -> DerivedTensor:
        source, bits = self.weight, self.bits
        row_bytes = self.block_size * bits // 8
        shape = (self.size_n, self.blocks, row_bytes)
        signed = is_signed(source.element_type)
        if not self.is_transposed:
            columns = partial(_columns, source, bits, self.size_k, self.size_n, self.blocks * row_bytes, is_signed=signed)
            return StreamedTensor(self._text(WEIGHT_FROM_DEQUANTIZE_LINEAR), UINT8, shape, [source], columns)
        return _in_place(self._text("MatMulNBits weight"), source, shape, self.size_k)

    def _scales(self) -> DerivedTensor:
        source, shape = self.scales, (self.size_n, self.blocks)
        element_type = source.element_type
        text = self._text("MatMulNBits scales" if self.is_transposed else SCALES_FROM_DEQUANTIZE_LINEAR)
        if len(source.shape) < 2:
            return DerivedTensor(text, element_type, shape, [source], lambda: _spread(_elements(source), shape))
        if self.is_transposed:
            return DerivedTensor(text, element_type, shape, [source], lambda: _elements(source).reshape(shape))
        return StreamedTensor(text, element_type, shape, [source], partial(_columns_of_floats, source))

    def _zero_points(self) -> DerivedTensor | None:
        source = self.zero_points
        signed = is_signed(self.weight.element_type)
        if source is None:
            if signed:
                return None
            source = zero_of(self.weight.element_type)
        bits, shape = self.bits, (self.size_n, -(-self.blocks * self.bits // 8))
        if len(source.shape) < 2:
            text = self._text("MatMulNBits zero points" if self.is_transposed else ZERO_POINTS_FROM_DEQUANTIZE_LINEAR)
            return DerivedTensor(text, UINT8, shape, [source], partial(_spread_codes, source, shape))
        if self.is_transposed:
            return _in_place(self._text("MatMulNBits zero points"), source, shape, self.blocks)
        columns = partial(_columns, source, bits, self.blocks, self.size_n, shape[1], is_signed=signed)
        return StreamedTensor(self._text(ZERO_POINTS_FROM_DEQUANTIZE_LINEAR), UINT8, shape, [source], columns)


def _in_place(text: str, source: Tensor, shape: tuple[int, ...], columns: int) -> DerivedTensor:
    """Rows that are packed as wanted: a view of the source, unless signs or padding differ.

    Args:
        text: the transformation.
        source: rows of ``columns`` elements.
        shape: of the result, bytes; the first axis counts rows.
        columns: elements in a row.
    """
    element_type = source.element_type
    bits, row_bytes, signed = element_type.bit_width, UINT8.nbytes(int(np.prod(shape[1:]))), is_signed(element_type)
    if not signed and columns * bits == row_bytes * 8:
        return DerivedTensor(text, UINT8, shape, [source], lambda: source.packed().reshape(shape))
    return StreamedTensor(
        text, UINT8, shape, [source], partial(_rows, source, bits, shape[0], columns, row_bytes, is_signed=signed)
    )


# What packs is imported when something is packed: kernels may well read DequantizeLinear's constants where they are.


def _columns(source: Tensor, *layout: int, is_signed: bool) -> Iterator[HostArray]:
    from .nbits_packing import transposed_rows

    return transposed_rows(source.packed(), *layout, is_signed=is_signed)


def _rows(source: Tensor, *layout: int, is_signed: bool) -> Iterator[HostArray]:
    from .nbits_packing import packed_rows

    return packed_rows(source.packed(), *layout, is_signed=is_signed)


def _columns_of_floats(source: Tensor) -> Iterator[HostArray]:
    from .nbits_packing import transposed_floats

    return transposed_floats(_elements(source))


def _elements(source: Tensor) -> HostArray:
    return source.packed().view(source.element_type.numpy_dtype).reshape(source.shape)


def _spread(values: HostArray, shape: tuple[int, ...]) -> HostArray:
    """One number, or one a row, seen in all places of a matrix."""
    return np.broadcast_to(values.reshape(-1, 1), shape)


def _spread_codes(source: Tensor, shape: tuple[int, ...]) -> HostArray:
    from .nbits_packing import raised_bytes

    element_type = source.element_type
    bits = element_type.bit_width
    packed = source.packed()
    raised = raised_bytes(packed, bits) if is_signed(element_type) else packed
    count = int(np.prod(source.shape, dtype=np.int64))
    codes = raised if bits == 8 else unpack_elements(raised, _UNSIGNED[bits], count).view(np.uint8)
    return _spread(codes * np.uint8(_REPEATED[bits]), shape)


_UNSIGNED = {2: TensorElementType.UINT2, 4: TensorElementType.UINT4}


def is_plain_product(matcher: GraphMatcher, node: Node, size_n: int) -> bool:
    """Whether a MatMul or Gemm is nothing but a product and the sum with a vector of N."""
    if node.op_type == "MatMul":
        return True
    bias, attributes = bias_of(node), node.attributes
    factors = [attributes.get("alpha", 1.0), attributes.get("beta", 1.0) if bias else 1.0]
    if attributes.get("transA", 0) or attributes.get("transB", 0) or any(abs(factor - 1.0) > TOLERANCE for factor in factors):
        return False
    return not bias or matcher.argument(bias).shape == (size_n,)


def bias_of(node: Node) -> str:
    """Name of a Gemm's bias; empty if there is none."""
    return node.inputs[2] if len(node.inputs) > 2 else ""


def drop_added(graph: Graph, before: int) -> None:
    """Take out the constants that were added since there were ``before`` of them, because no node came to read them."""
    for name in list(graph.initializers)[before:]:
        del graph.initializers[name]
        graph.values.pop(name, None)


def derived_constant(graph: Graph, wanted: str, tensor: DerivedTensor) -> str:
    """Name of a constant of the graph that is derived as the given one is; the given one is added if there is none."""
    name, count = wanted, 0
    while (found := graph.initializers.get(name)) is not None:
        if _is_same(found, tensor):
            return name
        count += 1
        name = f"{wanted}_{count}"
    return add_constant(graph, name, tensor)


def _is_same(first: Tensor, second: Tensor) -> bool:
    """Whether two constants are one, or are derived alike from such."""
    if first is second or not isinstance(first, DerivedTensor) or not isinstance(second, DerivedTensor):
        return first is second
    if first.transformation != second.transformation or len(first.sources) != len(second.sources):
        return False
    return all(_is_same(one, other) for one, other in zip(first.sources, second.sources, strict=True))
