"""Constants → ``Tensor`` and ``SparseTensor``."""

from __future__ import annotations

from ort_sdk.api import Fail, Tensor, TensorElementType
from ort_sdk.formats.ort.reader.tensors import NEWEST_ELEMENT_TYPE
from ort_sdk.formats.ort.slots import SparseSlot, TensorSlot
from ort_sdk.graph import ArrayTensor, SparseTensor

from .builder import FileBuilder, i32, offset

__all__ = ["WEIGHT_ALIGNMENT", "write_sparse_tensor", "write_tensor"]

WEIGHT_ALIGNMENT = 64
"""Bytes that divide the offset of every tensor's data in the file."""


def write_tensor(builder: FileBuilder, tensor: Tensor, name: str) -> int:
    """A ``Tensor`` with its elements.

    Raises:
        Fail: the format has no form for the element type.
    """
    kind = tensor.element_type
    if kind > NEWEST_ELEMENT_TYPE:
        raise Fail(
            f"tensor '{name}' is of {kind.onnx_name}, which ORT format has no form for; its newest element type is "
            f"{NEWEST_ELEMENT_TYPE.onnx_name}; save the model in ONNX format"
        )
    raw = strings = None
    if kind is TensorElementType.STRING:
        strings = builder.texts([_text(each) for each in tensor.numpy().reshape(-1)])
    else:
        raw = builder.items(tensor.packed(), WEIGHT_ALIGNMENT)
    dims = builder.numbers(tensor.shape, "<i8")
    named, doc = builder.text(name), builder.text("")
    return builder.table(
        TensorSlot,
        offset(TensorSlot.NAME, named),
        offset(TensorSlot.DOC_STRING, doc),
        offset(TensorSlot.DIMS, dims),
        i32(TensorSlot.DATA_TYPE, int(kind)),
        offset(TensorSlot.RAW_DATA, raw),
        offset(TensorSlot.STRING_DATA, strings),
    )


def write_sparse_tensor(builder: FileBuilder, tensor: SparseTensor, name: str) -> int:
    """A ``SparseTensor``."""
    values = write_tensor(builder, ArrayTensor(tensor.values), name)
    indices = write_tensor(builder, ArrayTensor(tensor.indices), "")
    dims = builder.numbers(tensor.shape, "<i8")
    return builder.table(
        SparseSlot, offset(SparseSlot.VALUES, values), offset(SparseSlot.INDICES, indices), offset(SparseSlot.DIMS, dims)
    )


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")
