"""Conv, FusedConv and ConvTranspose by oneDNN: NHWC within, weights reordered before the first run."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ort_sdk.api import NOT_PACKED, HostArray, KernelInfo, NotPacked, PrePackedWeights, RuntimeException, Tensor
from ort_sdk_cpu.conv.base import WEIGHT, ConvKernel, Variant
from ort_sdk_cpu.conv.problem import ConvAlgorithm
from ort_sdk_cpu.conv.select import TEAM_WORK
from ort_sdk_cpu.elementwise.activation import InPlace
from ort_sdk_cpu.kernel.layouts.call import LayoutCall, ZeroPadding
from ort_sdk_cpu.kernel.layouts.memory import AnyLayout, Layout, channels_last, contiguous, layout_of
from ort_sdk_cpu.kernel.onednn import PrimitiveCall, eltwise_of
from ort_sdk_cpu.onednn.attributes import PrimitiveAttributes
from ort_sdk_cpu.onednn.constants import Algorithm, Argument, binary_post_op
from ort_sdk_cpu.onednn.execution import PackedArray, reordered
from ort_sdk_cpu.onednn.library import library
from ort_sdk_cpu.onednn.memory_descriptor import MemoryDescriptor, any_layout
from ort_sdk_cpu.onednn.post_ops import Binary, PostOp
from ort_sdk_cpu.onednn.primitive import Primitive, convolution
from ort_sdk_cpu.platform.threads import openmp_threads

from .tiled_1d import Tile, TiledCall, tiles_of

__all__ = ["OneDnnConvKernel"]

_FLOAT = np.dtype(np.float32)


class OneDnnConvKernel(ConvKernel):
    """A convolution by a primitive, which is made for the shapes of a call. Arguments as for ``ConvKernel``."""

    own_algorithm = ConvAlgorithm.ONEDNN

    def __init__(self, info: KernelInfo, fallback: Any, activate: InPlace | None) -> None:
        super().__init__(info, fallback, activate)
        self._packed: PackedArray | None = None
        self._packed_later: PackedArray | None = None
        """A constant weight that the host did not have packed, since the convolution is small."""

    # Packing

    @property
    def is_packed(self) -> bool:  # type: ignore[override]
        """Whether the weight was packed."""
        return self._packed is not None

    def packing_identity(self, input_index: int) -> str | None:
        """OneDNN's version and instruction set, and the convolution the weight is packed for."""
        variant = self._expected if input_index == WEIGHT else None
        if variant is None:
            return None
        onednn = library()
        machine = f"{onednn.version}-{onednn.instruction_set}-{onednn.thread_count}"
        return f"onednn-{machine}-{variant}-{self.geometry}-{self._activations}"

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """Rearrange the weight as the convolution wants it."""
        primitive = self._expected_primitive() if input_index == WEIGHT else None
        if primitive is None or self._weight_shape is None:
            return NOT_PACKED
        plain = self.geometry.weight_layout(self._weight_shape, _FLOAT)
        packed = reordered(tensor.packed(), plain, primitive.layout(Argument.WEIGHTS))
        if packed is None:
            return NOT_PACKED
        packed.flags.writeable = False
        return PrePackedWeights((packed,))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Read the weight from the buffer."""
        primitive = self._expected_primitive()
        if primitive is not None:
            self._packed = PackedArray(weights.buffers[0], primitive.layout(Argument.WEIGHTS))

    def plain_inputs(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs with the weight as it was before it was packed."""
        if self._packed is None or self._weight_shape is None:
            return inputs
        weight = self._packed.in_layout(self.geometry.weight_layout(self._weight_shape, _FLOAT))
        return [inputs[0], weight.view(_FLOAT).reshape(self._weight_shape), *inputs[2:]]

    def _expected_primitive(self) -> Primitive | None:
        return None if self._expected is None else self._primitive(self._expected)

    # Fusing

    def _can_follow(self, variant: Variant) -> bool:
        return self._primitive(variant) is not None

    # Computing

    def _call(self, variant: Variant, inputs: Sequence[Any], arrays: Sequence[HostArray]) -> LayoutCall | TiledCall | None:
        """The call for operands and output like these arrays."""
        tiles, weight = self._tiles(variant), inputs[WEIGHT] if self._has_constant_weight else None
        if not tiles or any(self._primitive(variant, tile) is None for tile in tiles):
            return self._call_on(variant, weight, arrays, None)
        same = (not self._has_constant_weight) + variant.has_bias
        roles = ("x", *[""] * same, *["out"] * (len(arrays) - 1 - same))
        own = weakref.WeakMethod(self._call_on)  # this kernel keeps the call

        def make(tile: Tile, parts: Sequence[HostArray]) -> LayoutCall | None:
            call_on = own()
            if call_on is None:
                raise RuntimeException("a tile of a convolution is to be computed whose kernel is gone")
            return call_on(variant, weight, parts, tile)

        return TiledCall(tiles, make, roles)

    def _call_on(self, variant: Variant, weight: Any, arrays: Sequence[HostArray], tile: Tile | None) -> LayoutCall | None:
        """The call on whole arrays, or on a tile of a 1-D input; the weight is read if it is constant and was not packed."""
        padding = None if tile is None else _zeros_around(tile, arrays[0])
        variant = replace(variant, x_shape=arrays[0].shape if tile is None else (*arrays[0].shape[:-1], tile.padded_size))
        is_small = self.work(variant.x_shape, variant.weight_shape) < TEAM_WORK
        with openmp_threads(1) if is_small else contextlib.nullcontext():
            primitive = self._primitive(variant, tile)
        if primitive is None:
            return None
        weights, constants = primitive.layout(Argument.WEIGHTS), []
        if self._has_constant_weight:
            constants.append((Argument.WEIGHTS, weights, self._weight_in(weights, weight)))
        arguments = self._arguments(variant, weights, arrays)
        return PrimitiveCall(primitive, arguments, constants, self.workspace, is_small=is_small, padding=padding)

    def _tiles(self, variant: Variant) -> Sequence[Tile]:
        """Tiles of a long 1-D input; none of anything else."""
        geometry, shape = self.geometry, variant.weight_shape
        if len(shape) != 3 or variant.x_shape[0] != 1:
            return ()
        length, transposed = geometry.output_shape(variant.x_shape, shape)[2], geometry.transpose is not None
        padding = geometry.padding(variant.x_shape, shape)
        reach = (shape[2] - 1) * padding.dilations[0] + 1
        return tiles_of(variant.x_shape[2], length, reach, padding.strides[0], padding.begins[0], transposed=transposed)

    def _arguments(
        self, variant: Variant, weights: AnyLayout, arrays: Sequence[HostArray]
    ) -> list[tuple[int, AnyLayout, AnyLayout]]:
        """Arguments of a call: which, the array's layout, and the one that is wanted."""
        out = arrays[-1].shape
        ends: dict[int, AnyLayout] = {Argument.SRC: channels_last(variant.x_shape, _FLOAT)}
        if not self._has_constant_weight:
            ends[Argument.WEIGHTS] = weights
        if variant.has_bias:
            ends[Argument.BIAS] = contiguous((out[1],), _FLOAT)
        for position, post_op in enumerate(self._chain(variant.has_added, channels_last(out, _FLOAT))):
            if isinstance(post_op, Binary):
                ends[binary_post_op(position)] = channels_last(out, _FLOAT)
        ends[Argument.DST] = channels_last(out, _FLOAT)
        pairs = zip(ends.items(), arrays, strict=True)
        return [(argument, self._given(argument, variant.weight_shape, array), wanted) for (argument, wanted), array in pairs]

    def _weight_in(self, layout: MemoryDescriptor, weight: Any) -> HostArray:
        """A constant weight in a layout: packed before, or now."""
        packed = self._packed or self._packed_later
        if packed is None:
            plain = PackedArray(np.array(weight, order="C"), self.geometry.weight_layout(weight.shape, _FLOAT))
            packed = self._packed_later = PackedArray(plain.in_layout(layout), layout)
        return packed.in_layout(layout)

    def _given(self, argument: int, weight_shape: tuple[int, ...], array: HostArray) -> Layout:
        if argument == Argument.WEIGHTS:
            strides = None if array.flags.c_contiguous else [max(1, step // array.itemsize) for step in array.strides]
            return self.geometry.weight_layout(weight_shape, _FLOAT, strides)
        return layout_of(array) or contiguous(array.shape, _FLOAT)

    def _chain(self, has_added: bool, out: Layout) -> tuple[PostOp, ...]:
        """What is done to the sums, in order."""
        addition = (Binary(Algorithm.BINARY_ADD, out),)
        return (*(addition if has_added else ()), *map(eltwise_of, self._activations), *(addition if self._adds_last else ()))

    def _primitive(self, variant: Variant, tile: Tile | None = None) -> Primitive | None:
        """The primitive for a tile, for all of an input, or for one tile of many of a long 1-D input."""
        tiles = () if tile is not None else self._tiles(variant)
        if tiles:
            tile = tiles[len(tiles) // 2]
        geometry, shape, x_shape = self.geometry, variant.weight_shape, variant.x_shape
        padding = geometry.padding(x_shape, shape)
        out_shape = geometry.output_shape(x_shape, shape)
        if tile is not None:
            x_shape, out_shape = (1, x_shape[1], tile.padded_size), (1, out_shape[1], tile.out_count)
            padding = replace(padding, begins=(tile.begin,), ends=(tile.end,))
        if min(*padding.begins, *padding.ends) < 0:
            return None
        out = channels_last(out_shape, _FLOAT)
        bias = contiguous((geometry.output_channels(shape),), _FLOAT) if variant.has_bias else None
        return convolution(
            channels_last(x_shape, _FLOAT),
            any_layout(geometry.weight_dims(shape), _FLOAT),
            bias,
            out,
            padding.strides,
            padding.dilations,
            padding.begins,
            padding.ends,
            PrimitiveAttributes(self._chain(variant.has_added, out)),
            transposed=geometry.transpose is not None,
        )


def _zeros_around(tile: Tile, x: HostArray) -> ZeroPadding | None:
    """The zeros around a tile that reaches out of X."""
    is_padded = tile.before or tile.behind
    return ZeroPadding((1, x.shape[1], tile.size), tile.before, tile.behind) if is_padded else None
