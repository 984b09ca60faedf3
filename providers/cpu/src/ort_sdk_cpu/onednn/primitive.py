"""Primitives: one operation on arguments of given shapes and layouts, with code generated for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any

from ort_sdk_cpu.platform.contention import enable_affinity
from ort_sdk_cpu.platform.threads import openmp_threads

from .attributes import PrimitiveAttributes
from .constants import FORWARD_INFERENCE, Algorithm, Argument, Query
from .library import library
from .memory_descriptor import AnyDescription, MemoryDescriptor, described

__all__ = ["PLAIN", "Primitive", "convolution", "matmul", "pooling", "reorder"]

CACHED_PRIMITIVES = 1024
PLAIN = PrimitiveAttributes()
"""No post-ops, scales or zero points."""
_REFERENCE = "ref"
_QUERIES = {Argument.SRC: Query.SRC, Argument.WEIGHTS: Query.WEIGHTS, Argument.DST: Query.DST}


_Alike = Callable[["Primitive"], "Primitive | None"]


class Primitive:
    """A described primitive; its code is generated when it is first executed. Usable by any thread.

    Args:
        descriptor: ``dnnl_primitive_desc_t``, owned by the new object.
        key: all that it was made from.
        make_alike: makes one for the threads there are, with the layouts of this one.
    """

    def __init__(self, descriptor: Any, key: Hashable, make_alike: _Alike) -> None:
        onednn = library()
        self._make_alike, self._threads = make_alike, onednn.thread_count
        self._descriptor = onednn.ffi.gc(descriptor, onednn.functions.dnnl_primitive_desc_destroy)
        self._key = key
        self._layouts: dict[int, MemoryDescriptor] = {}

    @functools.cached_property
    def implementation(self) -> str:
        """OneDNN's name of the implementation, such as ``brgconv:avx512_core``."""
        onednn = library()
        text = onednn.ffi.new("char **")
        onednn.functions.dnnl_primitive_desc_query(self._descriptor, Query.IMPLEMENTATION, 0, text)
        return str(onednn.ffi.string(text[0]).decode())

    @functools.cached_property
    def handle(self) -> Any:
        """``dnnl_primitive_t``."""
        onednn = library()
        create, destroy = onednn.functions.dnnl_primitive_create, onednn.functions.dnnl_primitive_destroy
        if self._threads > 1:
            enable_affinity()
        # The library looks among those made before for one of the threads there are now, not of those described.
        with openmp_threads(self._threads):
            made = onednn.new_handle(f"creating primitive {self.implementation}", create, self._descriptor)
        return onednn.ffi.gc(made, destroy)

    @functools.cached_property
    def for_one_thread(self) -> Primitive | None:
        """The same for one thread and arguments that lie alike; None if there is no optimized one."""
        with openmp_threads(1):
            return self._make_alike(self)

    def layout(self, argument: Argument) -> MemoryDescriptor:
        """The layout it wants of SRC, WEIGHTS or DST."""
        found = self._layouts.get(argument)
        if found is None:
            found = self._layouts[argument] = self._queried(_QUERIES[argument], (argument, self._key))
        return found

    @functools.cached_property
    def scratchpad(self) -> MemoryDescriptor:
        """Workspace of an execution."""
        return self._queried(Query.SCRATCHPAD, (Argument.SCRATCHPAD, self._key))

    def _queried(self, query: Query, key: Hashable) -> MemoryDescriptor:
        onednn = library()
        functions = onednn.functions
        existing = functions.dnnl_primitive_desc_query_md(self._descriptor, query, 0)
        return MemoryDescriptor(onednn.new_handle("copying a memory descriptor", functions.dnnl_memory_desc_clone, existing), key)


def convolution(
    src: AnyDescription,
    weights: AnyDescription,
    bias: AnyDescription | None,
    dst: AnyDescription,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads_begin: tuple[int, ...],
    pads_end: tuple[int, ...],
    attributes: PrimitiveAttributes = PLAIN,
    *,
    transposed: bool = False,
) -> Primitive | None:
    """A convolution, or its transposition; None if there is no optimized one.

    Args:
        src: (N, C, *spatial).
        weights: (M, C, *kernel), with groups (G, M / G, C / G, *kernel).
        bias: (M,), or None.
        dst: (N, M, *spatial).
        strides: one per spatial axis, as all that follow.
        dilations: ONNX's: 1 for neighbouring taps.
        pads_begin: padding before each axis.
        pads_end: and behind it.
        attributes: what is done to the result.
        transposed: the operation is ConvTranspose.
    """
    geometry = (strides, tuple(dilation - 1 for dilation in dilations), pads_begin, pads_end)
    ends = (described(src), described(weights), _described_or_none(bias), described(dst))
    return _convolution(transposed, *ends, geometry, attributes, library().thread_count)


@functools.lru_cache(maxsize=CACHED_PRIMITIVES)
def _convolution(
    transposed: bool,
    src: MemoryDescriptor,
    weights: MemoryDescriptor,
    bias: MemoryDescriptor | None,
    dst: MemoryDescriptor,
    geometry: tuple[tuple[int, ...], ...],
    attributes: PrimitiveAttributes,
    threads: int,
) -> Primitive | None:
    onednn = library()
    functions = onednn.functions
    if transposed:
        make, algorithm = functions.dnnl_deconvolution_forward_primitive_desc_create, Algorithm.DECONVOLUTION_DIRECT
    else:
        make, algorithm = functions.dnnl_convolution_forward_primitive_desc_create, Algorithm.CONVOLUTION_DIRECT
    layouts = (src.handle, weights.handle, _or_null(bias), dst.handle)
    integers = [onednn.integers(values) for values in geometry]
    key = ("convolution", transposed, src, weights, bias, dst, geometry, attributes, threads)

    def alike(made: Primitive) -> Primitive | None:
        own = [made.layout(argument) for argument in (Argument.SRC, Argument.WEIGHTS, Argument.DST)]
        return _convolution(transposed, own[0], own[1], bias, own[2], geometry, attributes, onednn.thread_count)

    return _described(key, attributes, alike, make, onednn.engine, FORWARD_INFERENCE, algorithm, *layouts, *integers)


def matmul(
    src: AnyDescription,
    weights: AnyDescription,
    bias: AnyDescription | None,
    dst: AnyDescription,
    attributes: PrimitiveAttributes = PLAIN,
) -> Primitive | None:
    """A product of stacks of matrices (..., M, K) and (..., K, N); None if there is no optimized one.

    Args:
        src: left operand.
        weights: right operand; as many axes, stack sizes equal or 1.
        bias: as many axes as the result, sizes equal or 1; None for none.
        dst: result.
        attributes: what is done to the result.
    """
    ends = (described(src), described(weights), _described_or_none(bias), described(dst))
    return _matmul(*ends, attributes, library().thread_count)


@functools.lru_cache(maxsize=CACHED_PRIMITIVES)
def _matmul(
    src: MemoryDescriptor,
    weights: MemoryDescriptor,
    bias: MemoryDescriptor | None,
    dst: MemoryDescriptor,
    attributes: PrimitiveAttributes,
    threads: int,
) -> Primitive | None:
    onednn = library()
    make = onednn.functions.dnnl_matmul_primitive_desc_create
    key = ("matmul", src, weights, bias, dst, attributes, threads)

    def alike(made: Primitive) -> Primitive | None:
        return _matmul(src, made.layout(Argument.WEIGHTS), bias, dst, attributes, onednn.thread_count)

    return _described(key, attributes, alike, make, onednn.engine, src.handle, weights.handle, _or_null(bias), dst.handle)


def pooling(
    algorithm: Algorithm,
    src: AnyDescription,
    dst: AnyDescription,
    strides: tuple[int, ...],
    kernel: tuple[int, ...],
    dilations: tuple[int, ...],
    pads_begin: tuple[int, ...],
    pads_end: tuple[int, ...],
) -> Primitive | None:
    """Pooling of (N, C, *spatial); None if there is no optimized one. Dilations are ONNX's."""
    geometry = (strides, kernel, tuple(dilation - 1 for dilation in dilations), pads_begin, pads_end)
    return _pooling(algorithm, described(src), described(dst), geometry, library().thread_count)


@functools.lru_cache(maxsize=CACHED_PRIMITIVES)
def _pooling(
    algorithm: Algorithm, src: MemoryDescriptor, dst: MemoryDescriptor, geometry: tuple[tuple[int, ...], ...], threads: int
) -> Primitive | None:
    onednn = library()
    make = onednn.functions.dnnl_pooling_forward_primitive_desc_create
    integers = [onednn.integers(values) for values in geometry]
    key = ("pooling", algorithm, src, dst, geometry, threads)

    def alike(made: Primitive) -> Primitive | None:
        return _pooling(algorithm, src, made.layout(Argument.DST), geometry, onednn.thread_count)

    return _described(key, PLAIN, alike, make, onednn.engine, FORWARD_INFERENCE, algorithm, src.handle, dst.handle, *integers)


def reorder(src: AnyDescription, dst: AnyDescription, attributes: PrimitiveAttributes = PLAIN) -> Primitive | None:
    """A copy into another layout or type; None if there is no optimized one."""
    return _reorder(described(src), described(dst), attributes, library().thread_count)


@functools.lru_cache(maxsize=CACHED_PRIMITIVES)
def _reorder(src: MemoryDescriptor, dst: MemoryDescriptor, attributes: PrimitiveAttributes, threads: int) -> Primitive | None:
    onednn = library()
    make = onednn.functions.dnnl_reorder_primitive_desc_create
    key = ("reorder", src, dst, attributes, threads)

    def alike(_: Primitive) -> Primitive | None:
        return _reorder(src, dst, attributes, onednn.thread_count)

    return _described(key, attributes, alike, make, src.handle, onednn.engine, dst.handle, onednn.engine)


def _described_or_none(layout: AnyDescription | None) -> MemoryDescriptor | None:
    return None if layout is None else described(layout)


def _or_null(descriptor: MemoryDescriptor | None) -> Any:
    return library().ffi.NULL if descriptor is None else descriptor.handle


def _described(
    key: tuple[Any, ...], attributes: PrimitiveAttributes, make_alike: _Alike, make: Any, *arguments: Any
) -> Primitive | None:
    """The primitive of a descriptor; None if the library has none, or only one that is written to be plain, not fast."""
    onednn = library()
    with attributes.handle() as handle:
        descriptor = onednn.new_or_none(f"describing a {key[0]}", make, *arguments, handle)
    if descriptor is None:
        return None
    primitive = Primitive(descriptor, key, make_alike)
    return None if primitive.implementation.startswith(_REFERENCE) else primitive
