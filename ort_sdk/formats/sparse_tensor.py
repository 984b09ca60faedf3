"""Sparse constants: checks, and their dense form on demand."""

from __future__ import annotations

import math

import numpy as np

from ort_sdk.api import HostArray, InvalidGraph, Tensor, TensorElementType, element_type_of
from ort_sdk.graph import ArrayTensor, SparseTensor

__all__ = ["DensifiedTensor", "sparse_constant"]

_INDEX_TYPES = (TensorElementType.INT8, TensorElementType.INT16, TensorElementType.INT32, TensorElementType.INT64)
"""ONNX has int64; ONNX Runtime keeps the positions of sparse values in the narrowest type that holds them."""

_MAX_DENSE_BYTES = 2**31 - 1  # what a dense tensor inside a model can have at most


def sparse_constant(values: Tensor, indices: Tensor, shape: tuple[int, ...], name: str) -> SparseTensor:
    """A sparse constant of a model, checked.

    Args:
        values: those that are not zero.
        indices: where they are.
        shape: of the dense form.
        name: of the constant.

    Raises:
        InvalidGraph: they do not fit each other, or the dense form would be too large.
    """
    if indices.element_type not in _INDEX_TYPES:
        raise InvalidGraph(
            f"indices of sparse tensor '{name}' are {indices.element_type.onnx_name}; int64 indices, or narrower ones, can be"
        )
    sparse = SparseTensor(values.numpy(), indices.numpy().astype(np.int64, copy=False), shape)
    _check_sparse(sparse, name)
    return sparse


def _check_sparse(tensor: SparseTensor, name: str) -> None:
    """Check that values, indices and shape fit each other, and that the dense form is of a sane size.

    Raises:
        InvalidGraph: they do not.
    """
    owner = f"sparse tensor '{name}' of shape {list(tensor.shape)}"
    elements = math.prod(tensor.shape)
    if elements * max(tensor.values.dtype.itemsize, 1) > _MAX_DENSE_BYTES:
        raise InvalidGraph(f"{owner} would take more than {_MAX_DENSE_BYTES} bytes in dense form")
    if tensor.values.ndim != 1:
        raise InvalidGraph(f"{owner} has values of {tensor.values.ndim} dimensions; they must be a vector")
    count = len(tensor.values)
    if tensor.indices.shape not in ((count,), (count, len(tensor.shape))):
        raise InvalidGraph(
            f"{owner} has indices of shape {list(tensor.indices.shape)} for {count} values; [{count}] or "
            f"[{count}, {len(tensor.shape)}] is needed"
        )
    bounds = np.array(tensor.shape if tensor.indices.ndim == 2 else [elements], dtype=np.int64)
    positions = tensor.indices.reshape(count, -1)
    if np.any(positions < 0) or np.any(positions >= bounds):
        raise InvalidGraph(f"{owner} has an index outside its shape")


class DensifiedTensor:
    """A sparse initializer seen as the dense constant it stands for, made dense when first read.

    Args:
        sparse: checked.
    """

    __slots__ = ("_dense", "element_type", "sparse")

    def __init__(self, sparse: SparseTensor) -> None:
        self.sparse = sparse
        self._dense: ArrayTensor | None = None
        self.element_type: TensorElementType = element_type_of(sparse.values)

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions of the dense form."""
        return self.sparse.shape

    @property
    def nbytes(self) -> int:
        """Bytes of the dense form."""
        return self.element_type.nbytes(math.prod(self.shape))

    def numpy(self) -> HostArray:
        """The dense elements, read-only."""
        return self._tensor().numpy()

    def packed(self) -> HostArray:
        """The dense bytes as ONNX packs them."""
        return self._tensor().packed()

    def _tensor(self) -> ArrayTensor:
        if self._dense is None:
            self._dense = ArrayTensor(self.sparse.to_dense())
        return self._dense
