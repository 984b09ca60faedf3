"""Constants of float16 and bfloat16 as constants of float."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType
from ort_sdk.graph import Graph
from ort_sdk.graph.derived_tensor import StreamedTensor
from ort_sdk.graph.editing import add_constant

from .insert_cast import cast_name

__all__ = ["add_float_constant"]

_PIECE_ELEMENTS = 1 << 18


def add_float_constant(graph: Graph, name: str, tensor: Tensor) -> str:
    """Add a constant in float, which is computed when it is read; returns its name.

    Args:
        graph: gets the constant.
        name: of the constant that it is made of, perhaps one of a graph around this.
        tensor: that constant, float16 or bfloat16.
    """
    derived = StreamedTensor("Cast to float", TensorElementType.FLOAT, tuple(tensor.shape), (tensor,), _widened)
    return add_constant(graph, cast_name(graph, name), derived)


def _widened(tensor: Tensor) -> Iterator[HostArray]:
    elements = tensor.packed().view(tensor.element_type.numpy_dtype)
    for start in range(0, len(elements), _PIECE_ELEMENTS):
        yield elements[start : start + _PIECE_ELEMENTS].astype(np.float32).view(np.uint8)
