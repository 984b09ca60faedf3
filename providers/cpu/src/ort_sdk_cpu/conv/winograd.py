"""Convolutions of 3 by 3 taps by Winograd's minimal filtering: fewer products than oneDNN's direct ones, and shorter sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import NOT_PACKED, HostArray, InvalidArgument, KernelInfo, NotPacked, PrePackedWeights, Tensor
from ort_sdk.opset.nn.windows import WindowAttributes
from ort_sdk_cpu.elementwise.activation import InPlace
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.activation import Activation
from ort_sdk_cpu.kernel.layouts.call import LayoutCall
from ort_sdk_cpu.kernel.layouts.memory import Layout, channels_last, contiguous
from ort_sdk_cpu.kernel.layouts.task_execution import TaskExecution
from ort_sdk_cpu.kernel.work_stealing import CLAIMS, groups_for
from ort_sdk_cpu.memory.workspace import aligned_bytes
from ort_sdk_cpu.onednn.constants import Argument, binary_post_op
from ort_sdk_cpu.onednn.post_ops import Binary
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from .direct import WORK, TaskPlan, as_channels_last, kept, lies_channels_last
from .epilogue import ConvEpilogue
from .onednn import WEIGHT, ConvKernel, Variant

__all__ = ["WinogradKernel", "bias_of", "is_for_winograd"]

MODULE = "winograd"
LEAST_CHANNELS = 16
"""Channels, in and out, from which on there are enough products to pay for the transformations."""
LEAST_SIZE = 6
"""Height and width from which on few of the outputs of tiles fall outside."""
TILES_AT_ONCE = 48
"""Tiles whose transforms stay in a core's cache."""
LEAST_TILES = 16
"""Tiles per thread below which threads share tiles and take their own output channels."""
_TAPS, _POSITIONS, _ALIGNMENT, _FLOAT_BYTES = 9, 16, 64, 4
_FLOAT = np.dtype(np.float32)
_ADDED_PLACE, _LAST_PLACE = 3, 23


def is_for_winograd(info: KernelInfo) -> bool:
    """Whether a Conv node's weight is constant and of 3 by 3 taps, and there are enough channels and pixels.

    With few output channels only where pictures may have any size, for which there is no primitive yet.
    """
    tensor = info.constants.get(WEIGHT)
    if tensor is None or info.op_type == "ConvTranspose" or int(info.attribute("group", 1)) != 1 or len(tensor.shape) != 4:
        return False
    outputs, channels, *kernel = tensor.shape
    windows = WindowAttributes.of(info)
    is_plain = {*(windows.strides or ()), *(windows.dilations or ())} <= {1}
    if kernel != [3, 3] or not is_plain or min(outputs, channels) < LEAST_CHANNELS or not libraries.numba().is_usable:
        return False
    argument = info.inputs[0]
    shape = () if argument is None or argument.shape is None else tuple(argument.shape)
    sizes = [size for size in shape[2:] if isinstance(size, int)]
    if len(sizes) == len(kernel) and not _fills_panels(outputs):
        return False  # A primitive, which is made where sizes are known, does half of the work.
    return all(size >= LEAST_SIZE for size in sizes) and ConvEpilogue.of(info) is not None


def _fills_panels(outputs: int) -> bool:
    """Whether more than half of a panel is output channels."""
    return 2 * outputs > _width()


def bias_of(bias: HostArray | None, channels: int) -> HostArray | None:
    """A bias as tasks read it.

    Raises:
        InvalidArgument: it has not one number for each channel of the result.
    """
    if bias is None:
        return None
    if bias.shape != (channels,):
        raise InvalidArgument(f"bias of a convolution into {channels} channels has shape {bias.shape}; it must be ({channels},)")
    return np.ascontiguousarray(bias)


class WinogradKernel(ConvKernel):
    """activation(Conv(X, W, B) + Z) for constant weights of 3 by 3 taps. Arguments as for ``ConvKernel``."""

    def __init__(self, info: KernelInfo, kernel: Any, activate: InPlace | None) -> None:
        super().__init__(info, kernel, activate)
        self._transformed: HostArray | None = None
        self._transformed_later: HostArray | None = None
        """A weight that was not packed."""
        self._epilogue: tuple[tuple[Activation, ...], ConvEpilogue] | None = None
        """What is done to the sums, and the activations that say so."""
        self._plans: dict[Any, TaskPlan | None] = {}
        """By shape of X and threads."""

    def followed_by(self, activations: tuple[Activation, ...], x_shape: tuple[int, ...], *, adds_last: bool) -> ConvKernel | None:
        """As the other kernels'."""
        made = super().followed_by(activations, x_shape, adds_last=adds_last)
        if made is not None:
            made._plans = {}  # type: ignore[attr-defined]
        return made

    @property
    def is_packed(self) -> bool:  # type: ignore[override]
        """Whether the weight was packed."""
        return self._transformed is not None

    identity = "winograd-2x2"
    places: Mapping[int, int] = {Argument.SRC: 0, Argument.WEIGHTS: 1, Argument.BIAS: 2, Argument.DST: 4}
    """Argument → where the task takes its address."""

    def transform(self, weight: HostArray) -> HostArray:
        """Weights (M, C, *kernel) of float32, given as any contiguous array, as the task reads them: uint8."""
        return _transformed(weight, *self.constant_shape[:2])

    def restore(self, transformed: HostArray) -> HostArray:
        """The inverse, but for rounding."""
        return _original(transformed, *self.constant_shape[:2])

    def packing_identity(self, input_index: int) -> str | None:
        """The transform, and how many channels a panel has."""
        return f"{self.identity}-{_width()}" if input_index == WEIGHT and self._expected is not None else None

    @property
    def constant_shape(self) -> tuple[int, ...]:
        """Of the weight."""
        assert self._weight_shape is not None  # noqa: S101 - the weight is constant
        return self._weight_shape

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """Transform the weight."""
        if input_index != WEIGHT or self._expected is None:
            return NOT_PACKED
        transformed = self.transform(tensor.packed())
        transformed.flags.writeable = False
        return PrePackedWeights((transformed,))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Read the weight from the buffer."""
        self._transformed = weights.buffers[0]

    def plain_inputs(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The inputs with the weight as it was before it was packed, but for rounding."""
        if self._transformed is None:
            return inputs
        return [inputs[0], self.restore(self._transformed), *inputs[2:]]

    def _can_follow(self, variant: Variant) -> bool:
        return ConvEpilogue.of_activations(self._activations) is not None

    def task(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task, but for the arrays of a call; None if it cannot do it."""
        sizes = _Sizes(variant.x_shape, out_shape, libraries.thread_count())
        begins = self.geometry.padding(variant.x_shape, variant.weight_shape).begins
        return sizes.plan(begins, self.epilogue())

    def epilogue(self) -> ConvEpilogue:
        """What is done to the sums."""
        if self._epilogue is None or self._epilogue[0] is not self._activations:
            self._epilogue = (self._activations, ConvEpilogue.of_activations(self._activations) or ConvEpilogue())
        return self._epilogue[1]

    def source_layout(self, shape: tuple[int, ...]) -> Layout:
        """How the task reads X."""
        return channels_last(shape, _FLOAT)

    def _call(self, variant: Variant, inputs: Sequence[Any], arrays: Sequence[HostArray]) -> LayoutCall | None:
        made = self.task(variant, arrays[-1].shape)
        if made is None:
            return None
        places = dict(self.places)
        for position, post_op in enumerate(self._chain(variant.has_added, contiguous((), _FLOAT))):
            if isinstance(post_op, Binary):
                places[binary_post_op(position)] = _LAST_PLACE if position or not variant.has_added else _ADDED_PLACE
        execution = TaskExecution(made.call(), places, self.scratch, (WORK, made.work_bytes))
        execution.set(Argument.WEIGHTS, self.weight_of(inputs[WEIGHT]))
        weights = contiguous(variant.weight_shape, _FLOAT)
        (source, given, _), *others = self._arguments(variant, weights, arrays)
        return LayoutCall(execution, [(source, given, self.source_layout(variant.x_shape)), *others], self.scratch)

    def arranged(self, x: HostArray) -> HostArray:
        """X as the task reads it."""
        return as_channels_last(x)

    def write_varying(self, inputs: Sequence[Any], out: HostArray) -> bool:
        """The task, whatever the shapes: only the list of its sizes is made for them."""
        x, weight, bias, added, last = (*inputs, None, None, None)[:5]
        shape = out.shape
        if x.dtype != _FLOAT or not lies_channels_last(out) or any(z is not None and z.shape != shape for z in (added, last)):
            return False
        made = self._plan_for(x.shape, shape)
        if made is None:
            return super().write_varying(inputs, out)
        places = self.places
        arrays = [
            (places[Argument.SRC], self.arranged(x)),
            (places[Argument.WEIGHTS], self.weight_of(weight)),
            (places[Argument.BIAS], bias_of(bias, self.constant_shape[0])),
            (places[Argument.DST], out),
        ]
        sums = ((_ADDED_PLACE, added), (_LAST_PLACE, last))
        arrays += [(place, as_channels_last(array)) for place, array in sums if array is not None]
        made.run(arrays, self.scratch)
        return True

    # In a sequence

    added_places = (_ADDED_PLACE, _LAST_PLACE)
    """Where the task takes what is added to the sums and at last."""
    reads_row_major = False
    """Whether it reads X row-major."""

    @property
    def constant_places(self) -> tuple[int, ...]:
        """Where the task takes weight and bias."""
        return self.places[Argument.WEIGHTS], self.places[Argument.BIAS]

    def constant_arrays(self, given: Sequence[Any]) -> list[tuple[int, HostArray | None]]:
        """Weight and bias as the task reads them, with their places."""
        weight, bias = given
        arrays = (self.weight_of(weight), bias_of(bias, self.constant_shape[0]))
        return list(zip(self.constant_places, arrays, strict=True))

    def fitted(self, x_shape: tuple[int, ...]) -> tuple[tuple[int, ...], TaskPlan] | None:
        """Shape of the output for one of X, and the task; None if it cannot."""
        shape = self.fitted_shape(x_shape)
        plan = None if shape is None else self.task(Variant(x_shape, self.constant_shape, False, False), shape)
        return None if shape is None or plan is None else (shape, plan)

    def fitted_shape(self, x_shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Shape of the output for one of X; None if the task does not make it."""
        weight_shape, geometry = self.constant_shape, self.geometry
        if len(x_shape) != len(weight_shape) or x_shape[1] != geometry.input_channels(weight_shape) or 0 in x_shape:
            return None
        try:
            windows = geometry.windows.windows(x_shape[2:], weight_shape[2:])
        except InvalidArgument:
            return None  # The step by itself says so.
        is_fit = 0 not in windows.output_shape and min(*windows.pads_begin, *windows.pads_end) >= 0
        return (x_shape[0], weight_shape[0], *windows.output_shape) if is_fit else None

    def _plan_for(self, x_shape: tuple[int, ...], out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task for a shape, kept for when it comes again."""
        variant = Variant(x_shape, self.constant_shape, self._has_bias, self._has_added)
        return kept(self._plans, (x_shape, libraries.thread_count()), lambda: self.task(variant, out_shape))

    def weight_of(self, weight: Any) -> HostArray:
        """The weight as the task reads it.

        Args:
            weight: as the node has it; any if it was packed.
        """
        if self._transformed is not None:
            return self._transformed
        if self._transformed_later is None:
            self._transformed_later = self.transform(np.ascontiguousarray(weight))
        return self._transformed_later


class _Sizes(NamedTuple):
    """Of one convolution, and how its work is cut."""

    x_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    threads: int

    @property
    def tiles(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        height, width = self.out_shape[2:]
        return -(-height // 2), -(-width // 2)

    @property
    def parts(self) -> tuple[int, int]:
        """Blocks of tiles, and parts of the output channels."""
        tiles, panels = self.x_shape[0] * math.prod(self.tiles), -(-self.out_shape[1] // _width())
        blocks = -(-tiles // (TILES_AT_ONCE * self.threads)) * self.threads if tiles >= LEAST_TILES * self.threads else 1
        return blocks, min(panels, groups_for(blocks, self.threads))

    @property
    def work_bytes(self) -> int:
        """Working memory of a thread: transformed tiles and their products with a panel."""
        at_once = -(-self.x_shape[0] * math.prod(self.tiles) // self.parts[0])
        inputs = _POSITIONS * (at_once * (-(-self.x_shape[1] // 16) + 1) * _ALIGNMENT + _ALIGNMENT)
        return inputs + at_once * (_POSITIONS * _width() * _FLOAT_BYTES + _ALIGNMENT)

    def plan(self, begins: Sequence[int], epilogue: ConvEpilogue) -> TaskPlan:
        """The task, but for the arrays of a call."""
        (samples, channels, *size), (_, outputs, *out_size) = self.x_shape, self.out_shape
        geometry = (samples, *size, channels, outputs, *out_size, *begins, *self.tiles)
        work_bytes = self.work_bytes
        arguments = (0, 0, 0, 0, 0, 0, *geometry, *self.parts, work_bytes, *epilogue.arguments, *CLAIMS)
        return TaskPlan(MODULE, "winograd", arguments, self.threads, work_bytes * self.threads)


@functools.cache
def _width() -> int:
    """Output channels of a panel."""
    return 32 if instruction_set() >= InstructionSet.AVX512 else 16


def _transformed(weight: HostArray, outputs: int, channels: int) -> HostArray:
    """Weights (M, C, 3, 3) of float32, given as any contiguous array, as the task reads them: uint8."""
    threads = libraries.thread_count()
    result = aligned_bytes(-(-outputs // _width()) * _POSITIONS * channels * _width() * _FLOAT_BYTES)
    call = TaskCall(MODULE, "winograd_weights", (0, 0, 0, outputs, channels), threads)
    work = aligned_bytes(threads * _TAPS * 1024)
    for position, array in enumerate((weight, result, work)):
        call.point(position, array)
    call.run()
    return result


def _original(transformed: HostArray, outputs: int, channels: int) -> HostArray:
    """The inverse, but for rounding: (M, C, 3, 3)."""
    panels = transformed.view(_FLOAT).reshape(-1, 4, 4, channels, _width())
    ends, middle = panels[:, ::3], panels[:, 1:2] - panels[:, 2:3]
    rows = np.concatenate((ends[:, :1], middle, ends[:, 1:]), axis=1)
    taps = np.stack((rows[:, :, 0], rows[:, :, 1] - rows[:, :, 2], rows[:, :, 3]), axis=2)
    return np.ascontiguousarray(taps.transpose(0, 4, 3, 1, 2).reshape(-1, channels, 3, 3)[:outputs])
