"""Constants that DequantizeLinear reads, and those of MatMulNBits derived from them: computed when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, Tensor, TensorElementType, tensor_type
from ort_sdk.config_keys import DISABLE_QUANT_QDQ, QDQ_MATMULNBITS_ACCURACY_LEVEL
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.derived_tensor import DerivedTensor, ReshapedTensor, StreamedTensor
from ort_sdk.graph.editing import add_constant
from ort_sdk.graph.tensor import ArrayTensor
from ort_sdk.opset.contrib.matmul_nbits_layout import (
    SCALES_FROM_DEQUANTIZE_LINEAR,
    WEIGHT_FROM_DEQUANTIZE_LINEAR,
    ZERO_POINTS_FROM_DEQUANTIZE_LINEAR,
)
from ort_sdk.optimizer.pattern import MICROSOFT, GraphMatcher
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = [
    "DEQUANTIZE",
    "DequantizedConstant",
    "NBitsConstants",
    "NBitsLayout",
    "Shifts",
    "accuracy_level",
    "bias_of",
    "derived_constant",
    "drop_added",
    "is_plain_matmul",
    "is_quantization_enabled",
    "is_signed",
    "read_constant",
    "zero_of",
]

DEQUANTIZE = ("DequantizeLinear", f"{MICROSOFT}:DequantizeLinear")
DEFAULT_ACCURACY = "4"
_ACCURACIES = {"0": 0, "1": 1, "2": 2, "3": 3, "4": 4}
TOLERANCE = 1e-6
"""How far the factors of a Gemm may be from 1."""
UINT8 = TensorElementType.UINT8

_SIGNED = frozenset({TensorElementType.INT2, TensorElementType.INT4, TensorElementType.INT8})


class DequantizedConstant:
    """A DequantizeLinear node all of whose inputs are constants; its output is no output of the graph.

    Args:
        node: the node.
        weight: what it dequantizes.
        scales: its scales.
        zero_points: its zero points, if there are any.
        block_size: 0 unless quantized in blocks.
        axis: of channels, or along which blocks are; not negative.
    """

    __slots__ = ("axis", "block_size", "node", "scales", "weight", "zero_points")

    def __init__(
        self, node: Node, weight: Tensor, scales: Tensor, zero_points: Tensor | None, block_size: int, axis: int
    ) -> None:
        self.node = node
        self.weight = weight
        self.scales = scales
        self.zero_points = zero_points
        self.block_size = block_size
        self.axis = axis

    @property
    def output(self) -> str:
        """Name of the dequantized value."""
        return self.node.outputs[0]

    @property
    def zero_points_name(self) -> str:
        """Name of the zero points; empty if there are none."""
        return self.node.inputs[2] if self.zero_points is not None else ""


def is_quantization_enabled(context: TransformerContext) -> bool:
    """Whether the config lets QDQ models become integer ones."""
    return context.config.get(DISABLE_QUANT_QDQ) != "1"


def read_constant(matcher: GraphMatcher, node: Node) -> DequantizedConstant | None:
    """What a DequantizeLinear node dequantizes; None unless all is constant, and the result has the scales' type."""
    constant, inputs, attributes = matcher.tensor, node.inputs, node.attributes
    weight, scales, zero_points = constant(inputs[0]), constant(inputs[1]), None
    if weight is None or scales is None or matcher.graph.is_output(node.outputs[0]):
        return None
    if len(inputs) > 2 and inputs[2]:
        zero_points = constant(inputs[2])
        if zero_points is None:
            return None
    if attributes.get("output_dtype", 0) not in (0, scales.element_type):
        return None
    axis = attributes.get("axis", 1)
    if axis < 0:
        axis += len(weight.shape)
    return DequantizedConstant(node, weight, scales, zero_points, attributes.get("block_size", 0), axis)


def accuracy_level(context: TransformerContext) -> int:
    """What the session's config says of MatMulNBits nodes the optimizer makes.

    Raises:
        InvalidArgument: it is not 0 to 4.
    """
    text = context.config.get(QDQ_MATMULNBITS_ACCURACY_LEVEL, DEFAULT_ACCURACY)
    if text not in _ACCURACIES:
        raise InvalidArgument(
            f"{QDQ_MATMULNBITS_ACCURACY_LEVEL} is {text!r}; allowed are 0 (none), 1 (float32), 2, 3 (half) and 4 (int8)"
        )
    return _ACCURACIES[text]


def is_signed(element_type: TensorElementType) -> bool:
    """Whether a type of a quantized weight has negative numbers."""
    return element_type in _SIGNED


@cache
def zero_of(element_type: TensorElementType) -> Tensor:
    """The scalar 0 that stands for zero points that are not given."""
    return ArrayTensor(np.zeros((), element_type.numpy_dtype))


NBitsConstants = tuple[str, str, str]
"""Names of the constant inputs of a MatMulNBits node: weight, scales, and zero points (empty for the operator's default)."""


class Shifts(NamedTuple):
    """Numbers, one of each block, that are added to a dequantized matrix."""

    tensor: Tensor
    sign: int
    """-1 if they are subtracted, else 1."""


_Derivation = Callable[[Sequence[Tensor]], DerivedTensor]
"""Makes one of the constants, given the one tensor that it is derived from."""


class NBitsLayout:
    """A kind of quantized matrix that MatMulNBits can multiply by: models have many matrices of few kinds.

    Args:
        size_k: rows of the [K, N] matrix.
        size_n: its columns.
        block_size: elements of K in a block.
        element_type: of the weight, which is [K, N].
        scale_type: of the scales.
        scale_rank: axes of the scales, which are DequantizeLinear's.
        zero_point_rank: axes of the zero points, which are DequantizeLinear's; None if there are none.
        is_transposed: the tensors are laid out as MatMulNBits wants them but for signs and padding: the weight [N, K] or
            [N, k_blocks, block_size], scales and zero points [N, k_blocks], [N, k_blocks, 1], [N] or [].
    """

    __slots__ = (
        "_attributes",
        "_blocks",
        "_element_type",
        "_is_transposed",
        "_scales",
        "_text",
        "_weight",
        "_zero_points",
        "size_k",
        "size_n",
        "type",
    )

    def __init__(
        self,
        size_k: int,
        size_n: int,
        block_size: int,
        element_type: TensorElementType,
        scale_type: TensorElementType,
        scale_rank: int,
        zero_point_rank: int | None,
        *,
        is_transposed: bool = False,
    ) -> None:
        bits = element_type.bit_width
        self.size_k = size_k
        self.size_n = size_n
        self.type = tensor_type(scale_type)
        """Of scales, and so of the result and of A."""
        self._element_type = element_type
        self._is_transposed = is_transposed
        self._blocks = -(-size_k // block_size)
        self._attributes = {"K": size_k, "N": size_n, "bits": bits, "block_size": block_size, "accuracy_level": 0}
        self._text = f"{'transposed ' if is_transposed else ''}K={size_k} N={size_n} bits={bits} block_size={block_size}"
        self._weight = self._derive_weight(block_size * bits // 8)
        self._scales = self._derive_scales(scale_type, scale_rank)
        self._zero_points = None if zero_point_rank is None else self._derive_zero_points(zero_point_rank)

    def attributes(self, accuracy: int) -> dict[str, int]:
        """Attributes of the MatMulNBits node."""
        return self._attributes | {"accuracy_level": accuracy}

    def add_to(
        self, graph: Graph, names: NBitsConstants, weight: Tensor, scales: Tensor, zero_points: Tensor | None
    ) -> NBitsConstants:
        """Add the constants made of a matrix of this kind to a graph, unless it has them.

        Args:
            graph: changed.
            names: those wanted; that of zero points is not used where there are none.
            weight: the matrix.
            scales: its scales.
            zero_points: its zero points; not looked at if the kind has none.
        """
        derivation = self._zero_points
        return (
            derived_constant(graph, names[0], self._weight((weight,))),
            derived_constant(graph, names[1], self._scales((scales,))),
            "" if derivation is None or zero_points is None else derived_constant(graph, names[2], derivation((zero_points,))),
        )

    def add_shifted_to(
        self, graph: Graph, names: NBitsConstants, weight: Tensor, scales: Tensor, shifts: Shifts, zero_points: Tensor | None
    ) -> NBitsConstants:
        """The same for a matrix to each block of which a number is added once it is dequantized: zero points are float32.

        Args:
            graph: changed.
            names: those wanted.
            weight: the matrix, in the layout that MatMulNBits wants.
            scales: float32, one of each block.
            shifts: what is added.
            zero_points: of the weight's type, one of each block, if there are any.
        """
        shape, bits, element_type, sign = (self.size_n, self._blocks), self._attributes["bits"], self._element_type, shifts.sign
        sources = [scales, shifts.tensor, *([] if zero_points is None else [zero_points])]

        def points(own: Tensor, added: Tensor, codes: Tensor | None = None) -> Iterator[HostArray]:
            pieces: Iterator[HostArray] = _packing().zero_points_of_shifts(own, added, codes, shape, element_type, sign)
            return pieces

        scaled = DerivedTensor(
            f"MatMulNBits scales beside shifts {self._text}",
            scales.element_type,
            shape,
            sources[:2],
            lambda own, added: _packing().scales_beside_shifts(own, added, shape, bits),
        )
        text = f"MatMulNBits zero points of shifts {sign} {element_type.onnx_name} {self._text}"
        return (
            derived_constant(graph, names[0], self._weight((weight,))),
            derived_constant(graph, names[1], scaled),
            derived_constant(graph, names[2], StreamedTensor(text, scales.element_type, shape, sources, points)),
        )

    def _derive_weight(self, block_bytes: int) -> _Derivation:
        element_type, shape = self._element_type, (self.size_n, self._blocks, block_bytes)
        if self._is_transposed:
            return _in_place(f"MatMulNBits weight {self._text}", element_type, shape, self.size_k)
        columns = _columns(element_type, self.size_k, self.size_n, self._blocks * block_bytes)
        return partial(StreamedTensor, f"{WEIGHT_FROM_DEQUANTIZE_LINEAR} {self._text}", UINT8, shape, stream=columns)

    def _derive_scales(self, element_type: TensorElementType, rank: int) -> _Derivation:
        shape = (self.size_n, self._blocks)
        text = f"{'MatMulNBits scales' if self._is_transposed else SCALES_FROM_DEQUANTIZE_LINEAR} {self._text}"
        if rank > 1 and not self._is_transposed:
            return partial(StreamedTensor, text, element_type, shape, stream=lambda source: _packing().columns_of_floats(source))
        kind = ReshapedTensor if rank > 1 else DerivedTensor
        return partial(kind, text, element_type, shape, compute=lambda source: _packing().spread_floats(source, shape))

    def _derive_zero_points(self, rank: int) -> _Derivation:
        element_type = self._element_type
        shape = (self.size_n, -(-self._blocks * element_type.bit_width // 8))
        start = "MatMulNBits zero points" if self._is_transposed else ZERO_POINTS_FROM_DEQUANTIZE_LINEAR
        text = f"{start} {self._text}"
        if rank < 2:
            signed = is_signed(element_type)
            return partial(
                DerivedTensor, text, UINT8, shape, compute=lambda source: _packing().spread_codes(source, shape, is_signed=signed)
            )
        if self._is_transposed:
            return _in_place(text, element_type, shape, self._blocks)
        columns = _columns(element_type, self._blocks, self.size_n, shape[1])
        return partial(StreamedTensor, text, UINT8, shape, stream=columns)


def _packing() -> Any:
    """The module that computes the constants: imported when one is wanted, for kernels may read the sources where they are."""
    from . import packing

    return packing


def _in_place(text: str, element_type: TensorElementType, shape: tuple[int, ...], columns: int) -> _Derivation:
    """Rows that are packed as wanted: a view of the source, unless signs or padding differ.

    Args:
        text: the transformation.
        element_type: of the source.
        shape: of the result, bytes; the first axis counts rows.
        columns: elements in a row of the source.
    """
    bits, row_bytes, signed = element_type.bit_width, UINT8.nbytes(prod(shape[1:])), is_signed(element_type)
    if not signed and columns * bits == row_bytes * 8:
        return partial(ReshapedTensor, text, UINT8, shape, compute=lambda source: source.packed().reshape(shape))

    def stream(source: Tensor) -> Iterator[HostArray]:
        pieces: Iterator[HostArray] = _packing().packed_rows(
            source.packed(), bits, shape[0], columns, row_bytes, is_signed=signed
        )
        return pieces

    return partial(StreamedTensor, text, UINT8, shape, stream=stream)


def _columns(element_type: TensorElementType, rows: int, columns: int, row_bytes: int) -> Callable[[Tensor], Iterator[HostArray]]:
    bits, signed = element_type.bit_width, is_signed(element_type)

    def stream(source: Tensor) -> Iterator[HostArray]:
        pieces: Iterator[HostArray] = _packing().transposed_rows(
            source.packed(), bits, rows, columns, row_bytes, is_signed=signed
        )
        return pieces

    return stream


def is_plain_matmul(matcher: GraphMatcher, node: Node, size_n: int) -> bool:
    """Whether a MatMul or Gemm is nothing but a matrix product and the sum with a vector of N."""
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
    if wanted not in graph.values and graph.parent is None and not graph.bodies():
        graph.add_initializer(wanted, tensor)  # at once: large models have hundreds
        return wanted
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
