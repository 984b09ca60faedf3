"""An array library as the operators see it: the array API standard plus the few things the standard lacks.

``ArrayNamespace`` works over any module that follows the Python array API standard (2023.12 or newer); a library's own
adapter subclasses it and overrides what the library does better. Attribute access falls through to the module, so
operators write ``xp.matmul(a, b)`` and look functions up once, when the kernel is made.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ort_sdk.api import Array, HostArray, InvalidGraph, TensorElementType

from .sizes import item_bytes, require_size
from .special_functions import erf, erf_single

__all__ = ["ArrayNamespace", "known_type", "scatter_rows"]

_STANDARD_DTYPES = {
    TensorElementType.BOOL: "bool",
    TensorElementType.INT8: "int8",
    TensorElementType.INT16: "int16",
    TensorElementType.INT32: "int32",
    TensorElementType.INT64: "int64",
    TensorElementType.UINT8: "uint8",
    TensorElementType.UINT16: "uint16",
    TensorElementType.UINT32: "uint32",
    TensorElementType.UINT64: "uint64",
    TensorElementType.FLOAT: "float32",
    TensorElementType.DOUBLE: "float64",
    TensorElementType.COMPLEX64: "complex64",
    TensorElementType.COMPLEX128: "complex128",
}


@functools.cache
def _tables(module: ModuleType) -> tuple[dict[TensorElementType, Any], dict[Any, TensorElementType]]:
    """Element type → dtype of a module, and back; made once, since kernels make adapters of their own."""
    dtypes = {element_type: getattr(module, name) for element_type, name in _STANDARD_DTYPES.items() if hasattr(module, name)}
    return dtypes, {dtype: element_type for element_type, dtype in dtypes.items()}


def known_type(element_type: TensorElementType | None) -> TensorElementType:
    """An element type that a kernel cannot be made without.

    Raises:
        InvalidGraph: it is None.
    """
    if element_type is None:
        raise InvalidGraph(
            "an input's element type is not known; declare it (value_info, or the type of the body's input), so that the"
            " operator's kernel can be made for it"
        )
    return element_type


class ArrayNamespace:
    """Generic adapter over an array API module.

    Args:
        module: a module with the standard's functions (``array_api_strict``, ``array_api_compat.torch``, …).
    """

    is_host = False
    """Whether arrays are NumPy's: operators on strings, images and trees are registered only then."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self._dtypes, self._element_types = _tables(module)

    def __getattr__(self, name: str) -> Any:
        # Kept, so that it is found without this function next time: kernels of every node look some up.
        value = self.__dict__[name] = getattr(self.module, name)
        return value

    @property
    def element_types(self) -> frozenset[TensorElementType]:
        """Element types the library stores."""
        return frozenset(self._dtypes)

    def dtype(self, element_type: TensorElementType | None) -> Any:
        """The library's dtype for an element type.

        Raises:
            InvalidGraph: None was given, which stands for a type that is not known.
        """
        return self._dtypes[known_type(element_type)]

    def element_type(self, array: Array) -> TensorElementType:
        """Element type of one of the library's arrays.

        Raises:
            KeyError: ONNX has no such type.
        """
        return self._element_types[array.dtype]

    def compute_type(self, element_type: TensorElementType) -> TensorElementType:
        """Element type arithmetic is done in: the type itself, or a wider one for types outside the standard."""
        return WIDER_TYPES.get(element_type, element_type)

    def astype(self, array: Array, element_type: TensorElementType) -> Array:
        """The array converted to an element type; the array itself if it has it already."""
        return self.module.astype(array, self.dtype(element_type), copy=False)

    def converted(self, array: Array, element_type: TensorElementType, *, saturate: bool = True, round_mode: str = "up") -> Array:
        """A new array of an element type, as Cast makes it; standard types need neither of the two rules.

        Args:
            array: of any element type.
            element_type: of the result.
            saturate: values beyond a float8 type's range become its largest number, not infinite or NaN.
            round_mode: ``up``, ``down`` or ``nearest``, for float8e8m0.
        """
        return self.module.astype(array, self.dtype(element_type), copy=True)

    def with_bits_of(self, array: Array, element_type: TensorElementType) -> Array:
        """The array's bits as elements of another type of the same width. Goes through the host."""
        from .tensor.narrow_types import same_bits

        return self.from_host(same_bits(np.asarray(self.to_host(array)), element_type))

    def round_and_clip(self, values: Array, shift: Array | None, low: float, high: float, dtype: Any) -> Array:
        """Floating-point ``values`` rounded half to even, plus ``shift``, clipped to [low, high] and cast to ``dtype``.

        NaN becomes ``low``, as in ONNX Runtime on x86-64 (models calibrated on masks of -inf have scales of inf).
        ``values`` belongs to the caller's temporaries: an adapter may overwrite it.
        """
        rounded = self.module.round(values)
        if shift is not None:
            rounded = rounded + shift
        clipped = self.module.clip(rounded, low, high)
        lowest = self.module.asarray(low, dtype=clipped.dtype)
        return self.module.astype(self.module.where(self.module.isnan(clipped), lowest, clipped), dtype)

    def attention(self, q: Array, k: Array, v: Array, biases: Sequence[Array], scale: float) -> Array | None:
        """softmax(scale * q k^T + biases) v at once; None if the library has nothing for these arrays.

        Args:
            q: (batch, heads, sequence, size).
            k: (batch, key heads, keys, size); heads are a multiple of the key heads.
            v: (batch, key heads, keys, value size).
            biases: arrays that broadcast against the scores.
            scale: factor of the scores.

        Returns:
            (batch, heads, sequence, value size).
        """
        return None

    def unpack_bits(self, packed: Array, bits: int) -> Array:
        """(..., n) bytes as (..., n * 8 / bits) unsigned integers of 2, 4 or 8 bits, lowest bits first, each in a uint8."""
        if bits == 8:
            return packed
        module = self.module
        shifts = module.asarray(list(range(0, 8, bits)), dtype=module.uint8)
        mask = module.asarray(2**bits - 1, dtype=module.uint8)
        parts = module.bitwise_and(module.bitwise_right_shift(module.expand_dims(packed, axis=-1), shifts), mask)
        return module.reshape(parts, (*packed.shape[:-1], packed.shape[-1] * (8 // bits)))

    def sliding_windows(
        self, array: Array, kernel_shape: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> Array:
        """All windows over the trailing axes of (N, C, *spatial), as (N, C, *kernel, *output). Not to be written to."""
        spatial = array.shape[2:]
        spans = [(kernel - 1) * dilation + 1 for kernel, dilation in zip(kernel_shape, dilations, strict=True)]
        output = [(size - span) // stride + 1 for size, span, stride in zip(spatial, spans, strides, strict=True)]
        taps = [
            array[
                (
                    ...,
                    *(
                        slice(tap * dilation, tap * dilation + (out - 1) * stride + 1, stride)
                        for tap, dilation, out, stride in zip(index, dilations, output, strides, strict=True)
                    ),
                )
            ]
            for index in itertools.product(*map(range, kernel_shape))
        ]
        return self.module.reshape(self.module.stack(taps, axis=2), (*array.shape[:2], *kernel_shape, *output))

    def frames(self, signal: Array, length: int, step: int, count: int) -> Array:
        """Pieces of (N, L, C), ``step`` elements apart, as (N, count, length, C). Not to be written to."""
        indices = self.module.arange(count)[:, None] * step + self.module.arange(length)[None, :]
        taken = self.module.take(signal, self.module.reshape(indices, (-1,)), axis=1)
        return self.module.reshape(taken, (signal.shape[0], count, length, signal.shape[2]))

    def complex_parts(self, z: Array) -> Array:
        """Real and imaginary parts, along a last axis of their own."""
        return self.module.stack([self.module.real(z), self.module.imag(z)], axis=-1)

    def fourier(self, parts: Array, length: int, axis: int, *, inverse: bool = False, onesided: bool = False) -> Array:
        """Discrete Fourier transform along an axis, of as many elements as ``length`` says: others are left out, or zero.

        Args:
            parts: (..., 1) real, or (..., 2) real and imaginary parts.
            length: of the transform, at least one.
            axis: counted from the front, not the last one.
            inverse: the inverse transform, divided by its length.
            onesided: give the first half of a spectrum, ``length // 2 + 1`` elements; with ``inverse``, take it, and give a real
                signal, (..., 1).

        Returns:
            (..., 2) real and imaginary parts, in the type of ``parts``.
        """
        module, own = self.module, self.element_type(parts)
        double = own is TensorElementType.DOUBLE
        complex_type = TensorElementType.COMPLEX128 if double else TensorElementType.COMPLEX64
        if onesided and not inverse and parts.shape[-1] == 1:
            return self.astype(self.complex_parts(module.fft.rfft(parts[..., 0], n=length, axis=axis)), own)
        z = self.astype(parts[..., 0], complex_type)
        if parts.shape[-1] == 2:
            z = z + self.astype(parts[..., 1], complex_type) * 1j
        if onesided and inverse:
            return self.astype(module.fft.irfft(z, n=length, axis=axis)[..., None], own)
        spectrum = (module.fft.ifft if inverse else module.fft.fft)(z, n=length, axis=axis)
        if onesided:
            spectrum = spectrum[(*((slice(None),) * axis), slice(0, length // 2 + 1), ...)]
        return self.astype(self.complex_parts(spectrum), own)

    def scatter_flat(self, size: int, indices: Array, values: Array) -> Array:
        """A new array of ``size`` zeros, with ``values`` at ``indices`` (both one-dimensional). Goes through the host."""
        result = np.zeros(size, dtype=self.to_host(values).dtype)
        result[self.to_host(indices)] = self.to_host(values)
        return self.from_host(result)

    def erf(self, x: Array) -> Array:
        """Error function of a floating-point array, computed in float64."""
        wide = self.module.astype(x, self.module.float64, copy=False)
        value = erf(wide, self.module) if x.dtype == self.module.float64 else erf_single(wide, self.module)
        return self.module.astype(value, x.dtype, copy=False)

    def clamp(self, x: Array, low: Array, high: Array) -> Array:
        """min(max(x, low), high), also where low > high."""
        return self.module.minimum(self.module.maximum(x, low), high)

    def softmax(self, x: Array, axis: int) -> Array:
        """exp(x) divided by its sum along an axis, without overflow."""
        if 0 in x.shape:
            return self.module.asarray(x, copy=True)
        powers = self.module.exp(x - self.module.max(x, axis=axis, keepdims=True))
        return powers / self.module.sum(powers, axis=axis, keepdims=True)

    def smallest_indices(self, keys: Array, k: int) -> Array:
        """Indices of the ``k`` smallest keys along the last axis, ascending; of equal keys the earlier comes first."""
        return self.module.argsort(keys, axis=-1, stable=True)[..., :k]

    def repeat(self, array: Array, count: int, axis: int) -> Array:
        """Each element ``count`` times along an axis.

        Raises:
            InvalidArgument: no array can be that large. Libraries multiply sizes in 64 bits, and NumPy does not look.
        """
        shape = (*array.shape[:axis], array.shape[axis] * count, *array.shape[axis + 1 :])
        require_size("repeated elements", shape, item_bytes(array.dtype))
        return self.module.repeat(array, count, axis=axis)

    def tile(self, array: Array, counts: tuple[int, ...]) -> Array:
        """The array repeated along each of its axes.

        Raises:
            InvalidArgument: no array can be that large; see ``repeat``.
        """
        shape = tuple(size * count for size, count in zip(array.shape, counts, strict=True))
        require_size("repeated elements", shape, item_bytes(array.dtype))
        # Without elements, what is repeated on the way may still be larger than memory.
        return self.module.zeros(shape, dtype=array.dtype) if 0 in shape else self.module.tile(array, counts)

    def gather(self, array: Array, indices: Array, axis: int) -> Array:
        """Slices of ``array`` along ``axis`` at int32 or int64 ``indices`` of any shape, whose axes replace that axis.

        Negative indices count from the end.

        Raises:
            IndexError: an index is out of bounds, where the library notices.
        """
        module, shape, dim = self.module, array.shape, array.shape[axis]
        flat = module.reshape(module.astype(indices, module.int64, copy=False), (-1,))
        flat = module.where(flat < 0, flat + dim, flat)
        return module.reshape(module.take(array, flat, axis=axis), (*shape[:axis], *indices.shape, *shape[axis + 1 :]))

    def scatter(self, array: Array, positions: Array, updates: Array, reduction: str = "none") -> Array:
        """A copy of ``array`` with ``updates[i]`` put in, or combined with, its row ``positions[i]`` along axis 0.

        Args:
            array: (R, ...) array.
            positions: (M,) integers in [0, R).
            updates: (M, ...) array of the same type.
            reduction: ``none`` (the last duplicate wins), ``add``, ``mul``, ``min`` or ``max``.
        """
        rows = np.array(self.to_host(array))
        scatter_rows(rows, self.to_host(positions), self.to_host(updates), reduction)
        return self.from_host(rows)

    def to_host(self, array: Array) -> HostArray:
        """Contents as a NumPy array. Synchronises if the library computes elsewhere."""
        return np.from_dlpack(array)

    def from_host(self, array: HostArray) -> Array:
        """A new array of the library with the contents of a NumPy array."""
        return self.module.asarray(np.array(array, order="C"))


_COMBINE: dict[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


LONG_ROW = 1 << 8
"""Elements of a row from which on rows are combined one by one."""


def scatter_rows(rows: HostArray, positions: HostArray, updates: HostArray, reduction: str) -> None:
    """``ArrayNamespace.scatter`` on a NumPy array that may be written."""
    if reduction == "none":
        rows[positions] = updates
        return
    combine, width = _COMBINE[reduction], math.prod(rows.shape[1:])
    are_rows = rows.ndim > 1 and rows.flags.c_contiguous and updates.shape == (*positions.shape, *rows.shape[1:])
    if not are_rows or positions.ndim != 1:
        combine.at(rows, positions, updates)
    elif width >= LONG_ROW:
        for position, update in zip(positions.tolist(), updates, strict=True):
            combine(rows[position], update, out=rows[position])
    else:
        # NumPy's fast way is for vectors only.
        offsets = positions[:, np.newaxis] * width + np.arange(width)
        combine.at(rows.reshape(-1), offsets.reshape(-1), updates.reshape(-1))


WIDER_TYPES = {
    TensorElementType.FLOAT16: TensorElementType.FLOAT,
    TensorElementType.BFLOAT16: TensorElementType.FLOAT,
    TensorElementType.FLOAT8E4M3FN: TensorElementType.FLOAT,
    TensorElementType.FLOAT8E4M3FNUZ: TensorElementType.FLOAT,
    TensorElementType.FLOAT8E5M2: TensorElementType.FLOAT,
    TensorElementType.FLOAT8E5M2FNUZ: TensorElementType.FLOAT,
    TensorElementType.FLOAT8E8M0: TensorElementType.FLOAT,
    TensorElementType.FLOAT6E2M3: TensorElementType.FLOAT,
    TensorElementType.FLOAT6E3M2: TensorElementType.FLOAT,
    TensorElementType.FLOAT4E2M1: TensorElementType.FLOAT,
    TensorElementType.INT4: TensorElementType.INT8,
    TensorElementType.INT2: TensorElementType.INT8,
    TensorElementType.UINT4: TensorElementType.UINT8,
    TensorElementType.UINT2: TensorElementType.UINT8,
}
