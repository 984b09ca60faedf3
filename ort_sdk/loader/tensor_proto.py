"""``TensorProto`` → constant tensor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidGraph, Tensor, TensorElementType
from ort_sdk.graph import ArrayTensor, SparseTensor
from ort_sdk.graph.tensor import unpack_elements

from .typed_fields import decode_typed_field
from .types import element_type

__all__ = ["TensorReader"]

_MAX_RANK = 64  # NumPy's
_MAX_ELEMENTS = 2**63 - 1


class TensorReader:
    """Decodes the tensors of a model."""

    def read(self, proto: Any) -> Tensor:
        """Constant of a ``TensorProto``.

        Raises:
            InvalidGraph: shape, element type and data do not fit each other.
        """
        kind = element_type(proto.data_type, f"tensor '{proto.name}'")
        shape = _shape(proto)
        elements = math.prod(shape)
        if proto.HasField("raw_data"):
            return ArrayTensor(_decode_raw(proto, kind, shape, elements))
        return ArrayTensor(decode_typed_field(proto, kind, shape, elements))

    def read_sparse(self, proto: Any) -> SparseTensor:
        """Constant of a ``SparseTensorProto``."""
        return SparseTensor(self.read(proto.values).numpy(), self.read(proto.indices).numpy(), tuple(proto.dims))

    def read_sparse_initializer(self, proto: Any) -> Tensor:
        """Dense form of a ``SparseTensorProto``."""
        return ArrayTensor(self.read_sparse(proto).to_dense())


def _shape(proto: Any) -> tuple[int, ...]:
    if len(proto.dims) > _MAX_RANK:
        raise InvalidGraph(f"tensor '{proto.name}' has {len(proto.dims)} dimensions; at most {_MAX_RANK} are supported")
    shape = tuple(proto.dims)
    if shape and min(shape) < 0:
        raise InvalidGraph(f"tensor '{proto.name}' has shape {list(shape)}; sizes of a constant must not be negative")
    if math.prod(shape) > _MAX_ELEMENTS:
        raise InvalidGraph(f"tensor '{proto.name}' has shape {list(shape)}, which is more elements than can be addressed")
    return shape


def _decode_raw(proto: Any, kind: TensorElementType, shape: tuple[int, ...], elements: int) -> HostArray:
    if kind is TensorElementType.STRING:
        raise InvalidGraph(f"tensor '{proto.name}' holds strings in raw_data; ONNX keeps them in string_data")
    data = np.frombuffer(proto.raw_data, dtype=np.uint8)
    if len(data) != kind.nbytes(elements):
        raise InvalidGraph(
            f"tensor '{proto.name}', {kind.onnx_name} of shape {list(shape)}, has {len(data)} bytes of data; it needs "
            f"{kind.nbytes(elements)}"
        )
    if kind.is_packed:
        return unpack_elements(data, kind, elements).reshape(shape)
    if kind is TensorElementType.BOOL:
        return (data != 0).reshape(shape)
    return data.view(kind.numpy_dtype).reshape(shape)
