"""Quantised matrices from DequantizeLinear's layout (row by row, packed along N) to MatMulNBits' (packed along K), in pieces.

And their scales and zero points, to be derived constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType
from ort_sdk.graph.tensor import unpack_elements

__all__ = [
    "columns_of_floats",
    "packed_rows",
    "raised_bytes",
    "scales_beside_shifts",
    "spread_codes",
    "spread_floats",
    "transposed_floats",
    "transposed_rows",
    "zero_points_of_shifts",
]

_PIECE_ELEMENTS = 1 << 20
_LEAST_COLUMNS = 128
"""Columns of a piece; fewer would read less than a cache line of each row."""
_SLOW_ELEMENTS = 1 << 17
"""Elements of a piece whose rows begin inside bytes: each costs an index."""
_HALVES = {2: 0xAA, 4: 0x88, 8: 0x80}
"""Bits → the byte that, by exclusive or, raises each signed element in a byte by half the range."""
_REPEATED = {2: 0x55, 4: 0x11, 8: 1}
"""Bits → the byte that repeats an element in every field of a byte, by multiplication."""
_UNSIGNED = {2: TensorElementType.UINT2, 4: TensorElementType.UINT4}
_UNSIGNED_TYPES = frozenset({*_UNSIGNED.values(), TensorElementType.UINT8})
_MANTISSA_BITS = 24
"""Of float32."""


def raised_bytes(data: HostArray, bits: int) -> HostArray:
    """Packed signed elements raised by 2**(bits - 1), so that they are unsigned ones; a new array."""
    return np.bitwise_xor(data, np.uint8(_HALVES[bits]))


def transposed_rows(
    packed: HostArray, bits: int, rows: int, columns: int, row_bytes: int, *, is_signed: bool
) -> Iterator[HostArray]:
    """Columns of a matrix, each packed along its rows from a byte's beginning.

    Args:
        packed: elements of a (rows, columns) matrix as ONNX packs them.
        bits: 2, 4 or 8.
        rows: rows of the matrix.
        columns: its columns.
        row_bytes: bytes of each column in the result; what is after the last element is zero.
        is_signed: whether elements are to be raised by 2**(bits - 1).

    Yields:
        Vectors of several columns, one after the other.
    """
    per_byte = 8 // bits
    is_aligned = columns % per_byte == 0
    matrix = packed[: rows * columns // per_byte].reshape(rows, -1) if is_aligned else packed
    width = max(_LEAST_COLUMNS, _PIECE_ELEMENTS // max(rows, 1)) if is_aligned else max(1, _SLOW_ELEMENTS // max(rows, 1))
    width += -width % per_byte
    used, left = -(-rows // per_byte), rows % per_byte
    for start in range(0, columns, width):
        stop = min(start + width, columns)
        piece: HostArray = np.zeros((stop - start, row_bytes), np.uint8)
        if is_aligned:
            _transpose(matrix[:, start // per_byte : stop // per_byte], bits, piece[:, :used])
        else:
            _pack(_codes(matrix, bits, rows, columns, range(start, stop)), bits, piece[:, :used])
        if is_signed:
            piece[:, :used] ^= np.uint8(_HALVES[bits])
        if left:
            piece[:, used - 1] &= np.uint8((1 << (left * bits)) - 1)
        yield piece.reshape(-1)


def transposed_floats(matrix: HostArray) -> Iterator[HostArray]:
    """Bytes of a matrix's columns, several columns at a time."""
    rows, columns = matrix.shape
    width = max(1, _PIECE_ELEMENTS // max(rows, 1))
    for start in range(0, columns, width):
        yield np.ascontiguousarray(matrix[:, start : start + width].T).reshape(-1).view(np.uint8)


def packed_rows(packed: HostArray, bits: int, rows: int, columns: int, row_bytes: int, *, is_signed: bool) -> Iterator[HostArray]:
    """Rows of a matrix that is packed along them already, each from a byte's beginning; arguments as of ``transposed_rows``."""
    per_byte = 8 // bits
    width = max(1, (_SLOW_ELEMENTS if columns % per_byte else _PIECE_ELEMENTS) // max(columns, 1))
    used, left = -(-columns // per_byte), columns % per_byte
    for start in range(0, rows, width):
        stop = min(start + width, rows)
        piece: HostArray = np.zeros((stop - start, row_bytes), np.uint8)
        if left:
            positions = np.arange(start * columns, stop * columns).reshape(-1, columns)
            _pack(_elements(packed, bits, positions).T, bits, piece[:, :used])
        else:
            piece[:, :used] = packed[start * used : stop * used].reshape(-1, used)
        if is_signed:
            piece[:, :used] ^= np.uint8(_HALVES[bits])
        if left:
            piece[:, used - 1] &= np.uint8((1 << (left * bits)) - 1)
        yield piece.reshape(-1)


def _transpose(block: HostArray, bits: int, target: HostArray) -> None:
    """Columns of a block of whole bytes into rows of ``target``, which is zero."""
    per_byte, mask = 8 // bits, (1 << bits) - 1
    if per_byte == 1:
        target[...] = block.copy().T  # rows that are a power of two apart would push each other out of the cache
        return
    for column in range(per_byte):
        merged = np.zeros((target.shape[1], block.shape[1]), np.uint8)
        for row in range(per_byte):
            part = block[row::per_byte]
            merged[: len(part)] |= ((part >> np.uint8(column * bits)) & np.uint8(mask)) << np.uint8(row * bits)
        target[column::per_byte] = merged.T


def _pack(codes: HostArray, bits: int, target: HostArray) -> None:
    """Elements, one a byte, packed along their first axis into rows of ``target``, which is zero."""
    per_byte = 8 // bits
    for row in range(per_byte):
        part = codes[row::per_byte].T << np.uint8(row * bits)
        target[:, : part.shape[1]] |= part


def _codes(packed: HostArray, bits: int, rows: int, columns: int, wanted: range) -> HostArray:
    positions = np.arange(rows)[:, None] * columns + np.arange(wanted.start, wanted.stop)
    return _elements(packed, bits, positions)


def _elements(packed: HostArray, bits: int, positions: HostArray) -> HostArray:
    """Elements at positions of a packed vector, one a byte."""
    per_byte = 8 // bits
    shifts = (positions % per_byte * bits).astype(np.uint8)
    elements: HostArray = (packed[positions // per_byte] >> shifts) & np.uint8((1 << bits) - 1)
    return elements


def columns_of_floats(source: Tensor) -> Iterator[HostArray]:
    """``transposed_floats`` of a constant."""
    return transposed_floats(_floats(source))


def spread_floats(source: Tensor, shape: tuple[int, ...]) -> HostArray:
    """A constant matrix of a shape; one number, or one a row, is seen at all positions."""
    values = _floats(source)
    return values.reshape(shape) if values.ndim > 1 else _spread(values, shape)


def spread_codes(source: Tensor, shape: tuple[int, ...], *, is_signed: bool) -> HostArray:
    """Bytes of a matrix all of whose elements are one, or one a row.

    Args:
        source: one integer, or one a row.
        shape: of the result, bytes; the first axis counts rows.
        is_signed: whether elements are to be raised by half the range.
    """
    bits = source.element_type.bit_width
    codes = _bytes_of_codes(source, bits, is_signed=is_signed)
    return _spread(codes * np.uint8(_REPEATED[bits]), shape)


def scales_beside_shifts(scales: Tensor, shifts: Tensor, shape: tuple[int, ...], bits: int) -> HostArray:
    """Scales s of blocks of (q - z) * s + shift, such that shift / s is a number that float32 has; a view where all are.

    Where s is zero, or so small that products with it are lost in the shift's rounding, another scale is used with
    which they are lost, too.
    """
    own, added = _floats(scales).reshape(shape), _floats(shifts).reshape(shape)
    changed: HostArray | None = None
    for rows in _pieces_of_rows(shape):
        is_lost = np.abs(added[rows]) > _most(own[rows], bits)
        if is_lost.any():
            changed = own.copy() if changed is None else changed
            changed[rows][is_lost] = _scales_for(added[rows][is_lost], bits)
    return own if changed is None else changed


def zero_points_of_shifts(
    scales: Tensor, shifts: Tensor, codes: Tensor | None, shape: tuple[int, ...], element_type: TensorElementType, sign: int
) -> Iterator[HostArray]:
    """Zero points with which (q - zero point) * s is (q - z) * s + sign * shift, float32, in pieces.

    Args:
        scales: s of each block, as ``scales_beside_shifts`` takes them.
        shifts: of each block.
        codes: z of each block, of the weight's type; None for 0.
        shape: (rows, blocks).
        element_type: of the weight; signed ones are meant as raised by half their range.
        sign: 1, or -1 for shifts that are subtracted.
    """
    bits = element_type.bit_width
    half, own, added = 1 << (bits - 1), _floats(scales).reshape(shape), _floats(shifts).reshape(shape)
    is_raised = element_type not in _UNSIGNED_TYPES
    points = None if codes is None else _bytes_of_codes(codes, bits, is_signed=is_raised).reshape(shape)
    for rows in _pieces_of_rows(shape):
        is_lost = np.abs(added[rows]) > _most(own[rows], bits)
        factors = np.where(is_lost, _scales_for(added[rows], bits), own[rows]).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            quotients = np.where(added[rows] == 0, 0.0, added[rows] / factors)
        start = float(half if is_raised else 0) if points is None else points[rows]
        yield (start - sign * quotients).astype(np.float32).reshape(-1).view(np.uint8)


def _most(scales: HostArray, bits: int) -> HostArray:
    """Largest shifts beside which codes of some bits times these scales count for anything in float32."""
    return np.abs(scales.astype(np.float64)) * 2.0 ** (_MANTISSA_BITS + bits)


def _scales_for(shifts: HostArray, bits: int) -> HostArray:
    """Scales beside which shifts are as large as they may be."""
    return np.maximum(np.abs(shifts) * np.float32(2.0 ** -(_MANTISSA_BITS + bits)), np.finfo(np.float32).tiny)


def _pieces_of_rows(shape: tuple[int, ...]) -> Iterator[slice]:
    width = max(1, _PIECE_ELEMENTS // max(math.prod(shape[1:]), 1))
    return (slice(start, start + width) for start in range(0, shape[0], width))


def _bytes_of_codes(source: Tensor, bits: int, *, is_signed: bool) -> HostArray:
    """Packed integers one a byte; signed ones raised by half the range."""
    raised = raised_bytes(source.packed(), bits) if is_signed else source.packed()
    return raised if bits == 8 else unpack_elements(raised, _UNSIGNED[bits], math.prod(source.shape)).view(np.uint8)


def _floats(source: Tensor) -> HostArray:
    return source.packed().view(source.element_type.numpy_dtype).reshape(source.shape)


def _spread(values: HostArray, shape: tuple[int, ...]) -> HostArray:
    return np.broadcast_to(values.reshape(-1, 1), shape)
