"""Sparse tensors as users make and read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ort_sdk.api import Fail, HostArray, InvalidArgument, element_type_of
from ort_sdk.api.foreign_errors import public_class

from .ort_device import OrtDevice

if TYPE_CHECKING:
    from ort_sdk.session.enums import OrtSparseFormat

__all__ = ["SparseBlockSparseView", "SparseCooView", "SparseCsrView", "SparseTensor"]


class SparseCooView:
    """Coordinates of the values."""

    __slots__ = ("_indices",)

    def __init__(self, indices: HostArray) -> None:
        self._indices = indices

    def indices(self) -> HostArray:
        """int64, one position a value (of the flattened tensor), or one row (row, column) a value."""
        return self._indices


class SparseCsrView:
    """Compressed rows of the values."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, inner: HostArray, outer: HostArray) -> None:
        self._inner = inner
        self._outer = outer

    def inner(self) -> HostArray:
        """int64, the column of each value."""
        return self._inner

    def outer(self) -> HostArray:
        """int64, where each row starts among the values, and their count."""
        return self._outer


class SparseBlockSparseView:
    """Coordinates of the blocks."""

    __slots__ = ("_indices",)

    def __init__(self, indices: HostArray) -> None:
        self._indices = indices

    def indices(self) -> HostArray:
        """int32, a row (block row, block column) for each block."""
        return self._indices


_View = SparseCooView | SparseCsrView | SparseBlockSparseView
_FORMATS = {
    SparseCooView: "ORT_SPARSE_COO",
    SparseCsrView: "ORT_SPARSE_CSRC",
    SparseBlockSparseView: "ORT_SPARSE_BLOCK_SPARSE",
}


@public_class()
class SparseTensor:
    """A sparse tensor in host memory. Numeric values are aliased, not copied.

    Args:
        dense_shape: sizes of the dense tensor.
        values: values that are not zero.
        view: where they are.
    """

    __slots__ = ("_shape", "_values", "_view")

    def __init__(self, dense_shape: Sequence[int], values: HostArray, view: _View) -> None:
        if not isinstance(values, np.ndarray):
            raise TypeError(f"incompatible function arguments: values must be a numpy.ndarray, got {type(values).__name__}")
        self._shape = [int(size) for size in dense_shape]
        self._values = values
        self._view = view

    @staticmethod
    def sparse_coo_from_numpy(
        dense_shape: Sequence[int], values: HostArray, coo_indices: HostArray, ort_device: OrtDevice
    ) -> SparseTensor:
        """From coordinates: one flat index or one (row, column) pair a value, as many or twice as many as values.

        Raises:
            InvalidArgument: another number of indices, or one outside the tensor.
            Fail: the device is not the host.
        """
        _check_host(ort_device)
        indices = np.asarray(coo_indices, dtype=np.int64)
        tensor = SparseTensor(dense_shape, values, SparseCooView(indices))
        if indices.size not in (values.size, 2 * values.size):
            raise InvalidArgument(f"Index size: {indices.size} must be equal to or twice the values size: {values.size}")
        if indices.size == values.size:
            _check_indices(indices, int(np.prod(dense_shape, dtype=np.int64)))
        else:
            _check_indices(indices.reshape(-1, 2), np.asarray(dense_shape, dtype=np.int64))
        return tensor

    @staticmethod
    def sparse_csr_from_numpy(
        dense_shape: Sequence[int], values: HostArray, inner_indices: HostArray, outer_indices: HostArray, ort_device: OrtDevice
    ) -> SparseTensor:
        """From compressed rows of a matrix.

        Raises:
            InvalidArgument: numbers of indices that do not fit, or an index outside the matrix.
            Fail: the device is not the host.
        """
        _check_host(ort_device)
        inner, outer = np.asarray(inner_indices, dtype=np.int64), np.asarray(outer_indices, dtype=np.int64)
        tensor = SparseTensor(dense_shape, values, SparseCsrView(inner, outer))
        rows, columns = (int(size) for size in dense_shape)
        if inner.size != values.size or outer.size not in (0, rows + 1):
            raise InvalidArgument(
                f"{values.size} values of {rows} rows need {values.size} inner and {rows + 1} outer indices, "
                f"got {inner.size} and {outer.size}"
            )
        _check_indices(inner, columns)
        return tensor

    @staticmethod
    def blocksparse_from_numpy(
        dense_shape: Sequence[int], values: HostArray, indices: HostArray, ort_device: OrtDevice
    ) -> SparseTensor:
        """From blocks and their coordinates."""
        _check_host(ort_device)
        return SparseTensor(dense_shape, values, SparseBlockSparseView(np.asarray(indices, dtype=np.int32)))

    def values(self) -> HostArray:
        """The values, read-only if numeric."""
        if self._values.dtype.hasobject:
            return self._values.copy()
        view = self._values.view()
        view.flags.writeable = False
        return view

    def format(self) -> OrtSparseFormat:
        """How positions are kept."""
        from ort_sdk.session.enums import OrtSparseFormat

        return OrtSparseFormat[_FORMATS[type(self._view)]]

    def as_coo_view(self) -> SparseCooView:
        """Coordinates.

        Raises:
            Fail: another format.
        """
        if not isinstance(self._view, SparseCooView):
            raise Fail(f"This sparse tensor does not contain COO format, it is {self.format().name}")
        return self._view

    def as_csrc_view(self) -> SparseCsrView:
        """Compressed rows.

        Raises:
            Fail: another format.
        """
        if not isinstance(self._view, SparseCsrView):
            raise Fail(f"This sparse tensor does not contain CSR(C) format, it is {self.format().name}")
        return self._view

    def as_blocksparse_view(self) -> SparseBlockSparseView:
        """Blocks.

        Raises:
            Fail: another format.
        """
        if not isinstance(self._view, SparseBlockSparseView):
            raise Fail(f"This sparse tensor does not contain BlockSparse format, it is {self.format().name}")
        return self._view

    get_coo_data = as_coo_view
    get_csrc_data = as_csrc_view
    get_blocksparse_data = as_blocksparse_view

    def dense_shape(self) -> list[int]:
        """Sizes of the dense tensor."""
        return list(self._shape)

    def data_type(self) -> str:
        """ONNX type string, ``sparse_tensor(float)``."""
        return f"sparse_tensor({element_type_of(self._values).onnx_name})"

    def device_name(self) -> str:
        """Always the host."""
        return "cpu"

    def to_cuda(self, ort_device: OrtDevice) -> SparseTensor:
        """Not possible.

        Raises:
            Fail: always; sparse tensors stay on the host.
        """
        raise Fail(f"Cuda is not available for sparse tensors: they stay on the host, and cannot move to {ort_device}")


def _check_host(device: OrtDevice) -> None:
    if device.device_type() != OrtDevice.cpu():
        raise Fail(f"sparse tensors are kept on the host only, got {device}; use OrtDevice.make('cpu', 0)")


def _check_indices(indices: HostArray, limit: int | HostArray) -> None:
    if indices.size and (np.any(indices < 0) or np.any(indices >= limit)):
        raise InvalidArgument(f"sparse indices must be from 0 to below {limit}, got {indices.min()} to {indices.max()}")
