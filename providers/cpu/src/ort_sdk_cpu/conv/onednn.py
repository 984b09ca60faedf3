"""Conv, FusedConv and ConvTranspose by oneDNN: channels last within, weights packed before the first run."""

from __future__ import annotations

import contextlib
import copy
import math
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import (
    NOT_PACKED,
    HostArray,
    InvalidArgument,
    InvalidGraph,
    KernelInfo,
    NotPacked,
    PrePackedWeights,
    RuntimeException,
    Tensor,
    TensorElementType,
)
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.elementwise.activation import InPlace
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation
from ort_sdk_cpu.kernel.layouts.call import LayoutCall, ZeroPadding
from ort_sdk_cpu.kernel.layouts.channels_last import ChannelsLastKernel
from ort_sdk_cpu.kernel.layouts.memory import AnyLayout, Layout, channels_last, contiguous, is_channels_last, layout_of
from ort_sdk_cpu.kernel.onednn import PrimitiveCall, eltwise_of
from ort_sdk_cpu.onednn.attributes import PrimitiveAttributes
from ort_sdk_cpu.onednn.constants import Algorithm, Argument, binary_post_op
from ort_sdk_cpu.onednn.execution import PackedArray, reordered
from ort_sdk_cpu.onednn.library import is_available, is_loaded, library
from ort_sdk_cpu.onednn.memory_descriptor import MemoryDescriptor, any_layout
from ort_sdk_cpu.onednn.post_ops import Binary, PostOp
from ort_sdk_cpu.onednn.primitive import Primitive, convolution
from ort_sdk_cpu.platform.threads import team_of

from .epilogue import node_activation
from .few_windows import MAX_WINDOWS
from .geometry import ConvGeometry
from .onednn_tiled_1d import Piece, PiecedCall, pieces_of

if TYPE_CHECKING:
    from .dynamic_shapes import VaryingConvolution

__all__ = ["ConvKernel", "NoKernel", "Variant", "with_onednn"]

WEIGHT = 1
MINIMUM_WORK = 1 << 20
"""Multiplications and additions from which on oneDNN is loaded for a convolution. What lies channels last, so that the library
is loaded, it convolves whatever the size."""
MINIMUM_WORK_OF_MANY = 1 << 16
"""The same for more windows than the kernels without the library multiply by the weight as it lies."""
MINIMUM_WORK_TRANSPOSED = 1 << 12
"""The same for a transposed convolution where the library is loaded: without it, windows are added up one tap after another."""
MINIMUM_FUSED_WORK = 1 << 16
"""The same for a convolution that also does what follows it, which saves a step."""
TEAM_WORK = 1 << 20
"""Multiplications and additions that take about as long on one thread as waking another."""
GUESSED_SIZE = 56
"""Length of a spatial axis that is not known when the weight is packed: the layout hardly depends on it."""
PICTURE_RANK, VOLUME_RANK = 4, 5
"""Axes of a weight whose windows have rows and columns, and of one whose windows have planes of them."""
_FLOAT = np.dtype(np.float32)


def with_onednn(info: KernelInfo, kernel: Any, activate: InPlace | None) -> ConvKernel | None:
    """A convolution's kernel over oneDNN; None if it computes nothing of the node.

    Args:
        info: the node.
        kernel: computes what oneDNN does not.
        activate: the node's activation in NumPy; None if it has none.
    """
    if info.input_element_type(0) is not TensorElementType.FLOAT or not is_available():
        return None
    try:
        return _kind(info)(info, kernel, activate)
    except (InvalidArgument, InvalidGraph):
        return None  # The other kernel says so when it is run, as it does for shapes that are known only then.


def _kind(info: KernelInfo) -> type[ConvKernel]:
    """The fastest kernel for a node's weight. Its module is imported only where the weight is of the kind it takes."""
    weight = info.constants.get(WEIGHT)
    if info.op_type == "ConvTranspose":
        from .onednn_bias import BiasApartKernel, needs_bias_apart

        return BiasApartKernel if needs_bias_apart(info) else ConvKernel
    if weight is None:
        return ConvKernel
    if len(weight.shape) == PICTURE_RANK:
        from .depthwise import DepthwiseKernel, is_for_depthwise
        from .few_input_channels import StemKernel, is_for_stem
        from .few_output_channels import FewOutputsKernel, is_for_few_outputs
        from .winograd import WinogradKernel, is_for_winograd

        if is_for_winograd(info):
            return WinogradKernel
        if is_for_stem(info):
            return StemKernel
        if is_for_few_outputs(info):
            return FewOutputsKernel
        if is_for_depthwise(info):
            return DepthwiseKernel
    if len(weight.shape) == VOLUME_RANK and weight.shape[1] == 1:
        from .depthwise import DepthwiseKernel, is_for_depthwise

        if is_for_depthwise(info):
            return DepthwiseKernel
    if math.prod(weight.shape[2:]) == 1:
        from .pointwise import PointwiseKernel, is_for_pointwise

        if is_for_pointwise(info):
            return PointwiseKernel
    return ConvKernel


@dataclass(frozen=True, slots=True)
class Variant:
    """All that decides which primitive computes a call, beside the node's attributes."""

    x_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    has_bias: bool
    has_added: bool


class ConvKernel(ChannelsLastKernel):
    """activation(Conv(X, W, B) + Z), or ConvTranspose.

    Args:
        info: the node.
        kernel: computes what oneDNN does not.
        activate: the node's activation in NumPy, for those oneDNN does not have.
    """

    packs_in_first_run = True
    is_depthwise = False
    """Whether it has one filter per channel, and may be computed with what is around it."""
    _is_fused = False
    """Whether nothing else can compute what it does."""

    def __init__(self, info: KernelInfo, kernel: Any, activate: InPlace | None) -> None:
        super().__init__(info, kernel)
        self.geometry = ConvGeometry.of(info)
        """Where its windows lie."""
        activation = node_activation(info)
        self._activations: tuple[Activation, ...] = () if activation in {None, IDENTITY} else (activation,)
        self._adds_last = False
        """Whether one more input is added behind all else."""
        self._activate = activate if activation is None else None
        self.has_finish = self._activate is not None
        self._has_bias, self._has_added = info.has_input(2), info.has_input(3)
        self._x_shape = _shape_of(info, 0)
        tensor = info.constants.get(WEIGHT)
        self._has_constant_weight = tensor is not None
        self._weight_shape = _known_shape_of(info, WEIGHT) if tensor is None else tuple(tensor.shape)
        self._expected = self._expected_variant()
        self._packed: PackedArray | None = None
        self._packed_later: PackedArray | None = None
        """A constant weight that the host did not have packed, since the convolution is small."""
        self._varying: tuple[VaryingConvolution | None, ...] = ()
        """What convolves inputs of every shape, once that was asked for."""

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

    def _expected_variant(self) -> Variant | None:
        """The convolution to pack for: the node's, what is not known of X being guessed; None if it is small or not known."""
        shape = self._weight_shape
        if shape is None or not all(shape) or not 3 <= len(shape) <= 5:
            return None
        known = self._x_shape if self._x_shape is not None and len(self._x_shape) == len(shape) else (None,) * len(shape)
        guesses = [1, 0, *(max(GUESSED_SIZE, size) for size in shape[2:])]
        sizes = [size if isinstance(size, int) else guess for size, guess in zip(known, guesses, strict=True)]
        sizes[1] = self.geometry.input_channels(shape)
        if 0 in sizes or not self._is_worth_it(tuple(sizes), shape):
            return None
        return Variant(tuple(sizes), shape, self._has_bias, self._has_added)

    def _expected_primitive(self) -> Primitive | None:
        return None if self._expected is None else self._primitive(self._expected)

    # Fusing

    def followed_by(self, activations: tuple[Activation, ...], x_shape: tuple[int, ...], *, adds_last: bool) -> ConvKernel | None:
        """The kernel with more done to its result, for programs where X has this shape; None if that is not fast.

        Post-ops of ConvTranspose are slow.

        Args:
            activations: functions of each element, in order.
            x_shape: of X; Z has the output's.
            adds_last: whether an input behind X, W, B and Z, of the output's shape, is added at last.
        """
        shape = self._weight_shape
        if self.has_finish or not self._has_constant_weight or shape is None or len(x_shape) != len(shape):
            return None
        if self.geometry.transpose is not None or 0 in x_shape:
            return None
        if not self.is_packed and self.work(x_shape, shape) < MINIMUM_FUSED_WORK:
            return None
        made = copy.copy(self)
        made._kernel, made._is_fused = NoKernel(), True
        made._activations = (*self._activations, *activations)
        made._adds_last = adds_last
        made._calls = threading.local()
        made._varying = ()
        return made if made._can_follow(Variant(x_shape, shape, self._has_bias, self._has_added)) else None

    def _can_follow(self, variant: Variant) -> bool:
        return self._primitive(variant) is not None

    # Computing

    def _is_worth_it(self, x_shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> bool:
        is_few = self._windows(x_shape, weight_shape) <= MAX_WINDOWS
        least = MINIMUM_WORK if is_few else MINIMUM_WORK_OF_MANY
        if self.geometry.transpose is not None and is_loaded():
            least = MINIMUM_WORK_TRANSPOSED
        return self.work(x_shape, weight_shape) >= least

    def work(self, x_shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> int:
        """Multiplications and additions."""
        return 2 * self._windows(x_shape, weight_shape) * math.prod(weight_shape)

    def _windows(self, x_shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> int:
        """How often all weights are multiplied."""
        shape = x_shape if self.geometry.transpose is not None else self.geometry.output_shape(x_shape, weight_shape)
        return x_shape[0] * math.prod(shape[2:])

    def output_shape(self, inputs: Sequence[Any]) -> tuple[int, ...] | None:
        """(N, M, *spatial), if oneDNN computes it. Shapes that do not fit together are the other kernel's to refuse."""
        x, shape = inputs[0], self._weight_shape if self.is_packed else inputs[WEIGHT].shape
        if shape is None or x.ndim != len(shape) or not 3 <= x.ndim <= 5 or 0 in (*x.shape, *shape):
            return None
        channels, groups = self.geometry.input_channels(shape), self.geometry.groups
        if x.shape[1] != channels or channels % groups or self.geometry.output_channels(shape) % groups:
            return None
        is_wanted = self._is_fused or self.is_packed or is_channels_last(x) or self._is_worth_it(x.shape, shape)
        return self.geometry.output_shape(x.shape, shape) if is_wanted else None

    def operands(self, inputs: Sequence[Any]) -> list[HostArray]:
        """X, W unless it is constant, B and Z if they are there."""
        weights = [] if self._has_constant_weight else [inputs[WEIGHT]]
        return [inputs[0], *weights, *(value for value in inputs[WEIGHT + 1 :] if value is not None)]

    def finish(self, inputs: Sequence[Any], out: HostArray) -> None:
        """Apply an activation that oneDNN does not have."""
        if self._activate is not None:
            self._activate(out, out)

    def make_call(self, inputs: Sequence[Any], operands: Sequence[HostArray], out: HostArray) -> LayoutCall | PiecedCall | None:
        """The primitive on arrays of these layouts, or on pieces of them; packed weights belong to the call."""
        has_bias, has_added = (len(inputs) > index and inputs[index] is not None for index in (2, 3))
        shape = self._weight_shape if self.is_packed else tuple(inputs[WEIGHT].shape)
        if shape is None or (has_added and inputs[3].shape != out.shape):
            return None
        return self._call(Variant(tuple(inputs[0].shape), shape, has_bias, has_added), inputs, (*operands, out))

    def write_varying(self, inputs: Sequence[Any], out: HostArray) -> bool:
        """A task that takes sizes as arguments, for the convolutions that have one."""
        last = inputs[-1] if self._adds_last else None
        if not self._has_constant_weight or inputs[0].dtype != _FLOAT or (last is not None and last.shape != out.shape):
            return False
        if not self._varying:
            from .dynamic_shapes import varying_convolution

            weight = self.plain_inputs(inputs)[WEIGHT]
            self._varying = (varying_convolution(self.geometry, weight, self._activations, self.scratch),)
        convolve = self._varying[0]
        bias, added = (*inputs[WEIGHT + 1 :], None, None)[:2]
        if added is not None and added.shape != out.shape:
            return False
        if convolve is None or not convolve(inputs[0], bias, added, out):
            return False
        if last is not None:
            np.add(out, last, out)
        return True

    def _call(self, variant: Variant, inputs: Sequence[Any], arrays: Sequence[HostArray]) -> LayoutCall | PiecedCall | None:
        """The call for operands and output like these arrays."""
        pieces, weight = self._pieces(variant), inputs[WEIGHT] if self._has_constant_weight else None
        if not pieces or any(self._primitive(variant, piece) is None for piece in pieces):
            return self._call_on(variant, weight, arrays, None)
        same = (not self._has_constant_weight) + variant.has_bias
        roles = ("x", *[""] * same, *["out"] * (len(arrays) - 1 - same))
        own = weakref.WeakMethod(self._call_on)  # this kernel keeps the call

        def make(piece: Piece, parts: Sequence[HostArray]) -> LayoutCall | None:
            call_on = own()
            if call_on is None:
                raise RuntimeException("a piece of a convolution is to be computed whose kernel is gone")
            return call_on(variant, weight, parts, piece)

        return PiecedCall(pieces, make, roles)

    def _call_on(self, variant: Variant, weight: Any, arrays: Sequence[HostArray], piece: Piece | None) -> LayoutCall | None:
        """The call on whole arrays, or on a piece of a signal; the weight is read if it is constant and was not packed."""
        padding = None if piece is None else _zeros_around(piece, arrays[0])
        variant = replace(variant, x_shape=arrays[0].shape if piece is None else (*arrays[0].shape[:-1], piece.padded_size))
        is_small = self.work(variant.x_shape, variant.weight_shape) < TEAM_WORK
        with team_of(1) if is_small else contextlib.nullcontext():
            primitive = self._primitive(variant, piece)
        if primitive is None:
            return None
        weights, constants = primitive.layout(Argument.WEIGHTS), []
        if self._has_constant_weight:
            constants.append((Argument.WEIGHTS, weights, self._weight_in(weights, weight)))
        arguments = self._arguments(variant, weights, arrays)
        return PrimitiveCall(primitive, arguments, constants, self.scratch, is_small=is_small, padding=padding)

    def _pieces(self, variant: Variant) -> Sequence[Piece]:
        """Pieces of a long signal; none of anything else."""
        geometry, shape = self.geometry, variant.weight_shape
        if len(shape) != 3 or variant.x_shape[0] != 1:
            return ()
        length, transposed = geometry.output_shape(variant.x_shape, shape)[2], geometry.transpose is not None
        padding = geometry.padding(variant.x_shape, shape)
        reach = (shape[2] - 1) * padding.dilations[0] + 1
        return pieces_of(variant.x_shape[2], length, reach, padding.strides[0], padding.begins[0], transposed=transposed)

    def _arguments(
        self, variant: Variant, weights: AnyLayout, arrays: Sequence[HostArray]
    ) -> list[tuple[int, AnyLayout, AnyLayout]]:
        """Arguments of a call: which, how the array lies, and how it is wanted."""
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

    def _primitive(self, variant: Variant, piece: Piece | None = None) -> Primitive | None:
        """The primitive for a piece of a signal, for all of an input, or for one piece of many of a long signal."""
        pieces = () if piece is not None else self._pieces(variant)
        if pieces:
            piece = pieces[len(pieces) // 2]
        geometry, shape, x_shape = self.geometry, variant.weight_shape, variant.x_shape
        padding = geometry.padding(x_shape, shape)
        out_shape = geometry.output_shape(x_shape, shape)
        if piece is not None:
            x_shape, out_shape = (1, x_shape[1], piece.padded_size), (1, out_shape[1], piece.out_count)
            padding = replace(padding, begins=(piece.begin,), ends=(piece.end,))
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


class NoKernel:
    """Stands for another kernel where there is none, since it was seen that oneDNN computes the node."""

    def compute(self, *inputs: Any) -> Any:
        """Refuse."""
        shapes = [None if value is None else value.shape for value in inputs]
        raise RuntimeException(
            f"a convolution fused with what follows it got inputs {shapes}, which are not those it was made for"
        )


def _zeros_around(piece: Piece, x: HostArray) -> ZeroPadding | None:
    """What is copied around the elements of a piece of a signal."""
    is_padded = piece.before or piece.behind
    return ZeroPadding((1, x.shape[1], piece.size), piece.before, piece.behind) if is_padded else None


def _shape_of(info: KernelInfo, index: int) -> tuple[Any, ...] | None:
    argument = info.inputs[index] if index < len(info.inputs) else None
    return None if argument is None or argument.shape is None else tuple(argument.shape)


def _known_shape_of(info: KernelInfo, index: int) -> tuple[int, ...] | None:
    shape = _shape_of(info, index)
    return shape if shape is not None and all(isinstance(size, int) for size in shape) else None
