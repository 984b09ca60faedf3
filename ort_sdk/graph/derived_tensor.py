"""Constants that are computed from other constants when they are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np

from ort_sdk.api import HostArray, Tensor, TensorElementType

from .tensor import pack_elements

__all__ = ["DerivedTensor", "ReshapedTensor", "StreamedTensor", "private_array"]


class DerivedTensor:
    """A constant made of other constants (a weight scaled by a folded normalization, a transposed weight).

    Its elements are computed each time they are asked for and are not kept: the reader holds the result, so that memory
    has them once.

    Args:
        transformation: text that names the computation and its parameters; with the sources' identities it is the tensor's.
        element_type: element type of the result.
        shape: its dimensions in elements.
        sources: what is read.
        compute: gives the elements, a new array that nobody else holds or a view of a source's; called with the sources.
    """

    __slots__ = ("_compute", "element_type", "shape", "sources", "transformation")

    def __init__(
        self,
        transformation: str,
        element_type: TensorElementType,
        shape: tuple[int, ...],
        sources: Sequence[Tensor],
        compute: Callable[..., HostArray],
    ) -> None:
        self.transformation = transformation
        self.element_type = element_type
        self.shape = shape
        self.sources = tuple(sources)
        self._compute = compute

    @property
    def nbytes(self) -> int:
        """Bytes in ONNX's packed form; 0 for strings."""
        return self.element_type.nbytes(math.prod(self.shape))

    @property
    def identity(self) -> Hashable:
        """Equal for the same transformation of the same bytes; None if a source has no identity."""
        sources = tuple(getattr(source, "identity", None) for source in self.sources)
        return None if None in sources else ("derived", self.transformation, sources)

    def numpy(self) -> HostArray:
        """The elements, read-only, computed now."""
        view = self._assembled().view()
        view.flags.writeable = False
        return view

    def _assembled(self) -> HostArray:
        return self._compute(*self.sources)

    def packed(self) -> HostArray:
        """The bytes as ONNX packs them, computed now."""
        return pack_elements(self.numpy(), self.element_type)

    def pieces(self) -> Iterator[HostArray]:
        """The bytes as ONNX packs them, in order, in contiguous ``uint8`` vectors computed as they are asked for."""
        yield self.packed()

    def write_into(self, destination: HostArray) -> None:
        """Fill memory of the caller's with the bytes as ONNX packs them, piece by piece.

        Args:
            destination: a contiguous ``uint8`` vector of ``nbytes`` bytes.
        """
        start = 0
        for piece in self.pieces():
            destination[start : start + len(piece)] = piece
            start += len(piece)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.transformation}, {self.element_type.onnx_name}, {list(self.shape)})"


class ReshapedTensor(DerivedTensor):
    """A derived constant that has its only source's bytes as ONNX packs them, in another shape or as another type."""

    __slots__ = ()


class StreamedTensor(DerivedTensor):
    """A derived constant that is computed some bytes at a time, so that next to the result little memory is needed.

    Args:
        transformation: see ``DerivedTensor``.
        element_type: of whole bytes; no strings.
        shape: dimensions.
        sources: what is read.
        stream: gives the bytes of the elements in order, in contiguous ``uint8`` vectors; called with the sources.
    """

    __slots__ = ("_stream",)

    def __init__(
        self,
        transformation: str,
        element_type: TensorElementType,
        shape: tuple[int, ...],
        sources: Sequence[Tensor],
        stream: Callable[..., Iterator[HostArray]],
    ) -> None:
        self.transformation = transformation  # not by the base's initializer: large models have hundreds of these
        self.element_type = element_type
        self.shape = shape
        self.sources = tuple(sources)
        self._stream = stream

    def pieces(self) -> Iterator[HostArray]:
        """See ``DerivedTensor``."""
        return self._stream(*self.sources)

    def _assembled(self) -> HostArray:
        content: HostArray = np.empty(self.nbytes, np.uint8)
        self.write_into(content)
        return content.view(self.element_type.numpy_dtype).reshape(self.shape)


def private_array(tensor: Tensor) -> HostArray:
    """A writable, aligned copy of a tensor's elements that leaves nothing behind in the tensor's own caches."""
    element_type = tensor.element_type
    if element_type.is_packed or element_type in {TensorElementType.STRING, TensorElementType.BOOL}:
        return tensor.numpy().copy()
    return tensor.packed().copy().view(element_type.numpy_dtype).reshape(tensor.shape)
