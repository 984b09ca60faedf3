"""``Tensor`` and ``SparseTensor`` → constants."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import Fail, InvalidGraph, Tensor, TensorElementType
from ort_sdk.formats.files.byte_source import ByteSource
from ort_sdk.formats.files.mapped_tensor import MappedTensor
from ort_sdk.formats.ort.slots import SparseSlot, TensorSlot
from ort_sdk.formats.sparse_tensor import DensifiedTensor, sparse_constant
from ort_sdk.graph import ArrayTensor

from .flatbuffer import Table

__all__ = ["NEWEST_ELEMENT_TYPE", "TensorReader"]

NEWEST_ELEMENT_TYPE = TensorElementType.FLOAT8E5M2FNUZ
"""The last element type, by code, that the format defines for constants."""
_MAX_RANK = 64  # NumPy's
_MAX_BYTES = 2**63 - 1
_WIDEST_ELEMENT = 16


class TensorReader:
    """Reads the constants of one file as ranges of it.

    Args:
        source: the file.
    """

    def __init__(self, source: ByteSource) -> None:
        self._source = source

    def read(self, table: Table, owner: str = "") -> Tensor:
        """A dense constant; the bytes stay in the file.

        Args:
            table: the ``Tensor``.
            owner: the tensor, for messages; its name by default.

        Raises:
            Fail: data is missing, outside the file, or of an element type without a storage form.
            InvalidGraph: shape, element type and data do not fit each other.
        """
        owner = owner or f"tensor '{table.text(TensorSlot.NAME) or ''}'"
        shape = read_dims(table, TensorSlot.DIMS, owner)
        kind = _element_type(table.i32(TensorSlot.DATA_TYPE), owner)
        elements = math.prod(shape)
        if kind is TensorElementType.STRING:
            return _strings(table, shape, elements, owner)
        if table.i64(TensorSlot.EXTERNAL_DATA_OFFSET, -1) != -1:
            raise Fail(f"{owner}: Tensor has external data but a data reader was not provided; only checkpoints have such data.")
        found = table.vector(TensorSlot.RAW_DATA, 1)
        if found is None:
            raise Fail(f"Missing raw data for initializer: {owner}. Invalid ORT format model.")
        first, nbytes = found
        if nbytes != kind.nbytes(elements):
            raise Fail(
                f"Initializer raw data size mismatch: {owner}, {kind.onnx_name} of shape {list(shape)}, has {nbytes} bytes; "
                f"it needs {kind.nbytes(elements)}"
            )
        return MappedTensor(self._source, first, kind, shape, nbytes)

    def read_sparse(self, table: Table) -> tuple[str, Tensor]:
        """Name and dense form of a sparse initializer.

        Raises:
            Fail: a part is missing.
            InvalidGraph: values, indices and shape do not fit each other.
        """
        values = table.table(SparseSlot.VALUES, "Tensor")
        indices = table.table(SparseSlot.INDICES, "Tensor")
        if values is None or indices is None:
            raise Fail("Sparse initializer without values or indices. Invalid ORT format model.")
        name = required_name(values)
        shape = read_dims(table, SparseSlot.DIMS, f"sparse tensor '{name}'")
        positions = self.read(indices, f"indices of '{name}'")
        return name, DensifiedTensor(sparse_constant(self.read(values), positions, shape, name))


def required_name(table: Table) -> str:
    """Name of an initializer.

    Raises:
        Fail: it has none.
    """
    name = table.text(TensorSlot.NAME)
    if not name:
        raise Fail("Missing name of an initializer. Invalid ORT format model.")
    return name


def read_dims(table: Table, slot: int, owner: str) -> tuple[int, ...]:
    """Shape of a constant.

    Raises:
        Fail: it is missing.
        InvalidGraph: it is no shape that can be addressed.
    """
    if not table.has(slot):
        raise Fail(f"Missing dimensions for initializer: {owner}. Invalid ORT format model.")
    shape = tuple(table.numbers(slot, "<i8"))
    if len(shape) > _MAX_RANK or any(size < 0 for size in shape):
        raise InvalidGraph(f"{owner} has shape {list(shape)[:80]}; constants have at most {_MAX_RANK} sizes, none negative")
    # The product without zeros bounds every stride, too.
    if _WIDEST_ELEMENT * math.prod(size for size in shape if size) > _MAX_BYTES:
        raise InvalidGraph(f"{owner} has shape {list(shape)}, which is more elements than can be addressed")
    return shape


def _element_type(code: int, owner: str) -> TensorElementType:
    if not TensorElementType.UNDEFINED < code <= NEWEST_ELEMENT_TYPE:
        raise Fail(f"Unsupported tensor data type: {owner} has the code {code}; 1 to {int(NEWEST_ELEMENT_TYPE)} can be stored.")
    return TensorElementType(code)


def _strings(table: Table, shape: tuple[int, ...], elements: int, owner: str) -> Tensor:
    texts = table.texts(TensorSlot.STRING_DATA)
    if len(texts) != elements:
        raise Fail(f"{owner} of shape {list(shape)} has {len(texts)} strings; it needs {elements}. Invalid ORT format model.")
    array = np.empty(elements, dtype=object)
    array[:] = texts
    return ArrayTensor(array.reshape(shape))
