"""Convolutions of inputs whose shape is another in each run: by tasks that take sizes as arguments.

A primitive of oneDNN is made for one shape, which takes longer than most convolutions. All is NHWC here, and a 1-D input is an
image with one row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.sizes import tiled
from ort_sdk_cpu.conv.arguments.depthwise import MODULE
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.conv.problem import ConvAlgorithm
from ort_sdk_cpu.conv.select import choose_dynamic
from ort_sdk_cpu.elementwise.arguments.functions import MODULE as FUNCTIONS
from ort_sdk_cpu.elementwise.arguments.functions import Silu, Unary
from ort_sdk_cpu.elementwise.clip import clamp
from ort_sdk_cpu.gemm.arguments.epilogue import EPILOGUE_KINDS
from ort_sdk_cpu.gemm.overlapping_rows import OverlappingRows, OverlappingRowsGemm
from ort_sdk_cpu.gemm.plan import GemmFunction
from ort_sdk_cpu.gemm.select import BLayout
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation, ActivationKind
from ort_sdk_cpu.kernel.task_writer import ACTIVATION_WORK, threads_for
from ort_sdk_cpu.memory.workspace import Workspace

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskFunction

__all__ = ["DynamicConvolution", "dynamic_convolution"]

WORK_PER_THREAD = 1 << 17
"""Multiplications that are worth another thread."""
MOST_WORK = 1 << 26
"""Multiplications from which on a primitive is worth making, if there is im2row to do first."""
MOST_CUT_BYTES = 1 << 24
"""Of a result that is cut out of a larger one: larger ones are worth a primitive."""
_FLOAT = np.dtype(np.float32)
_FLOAT_BYTES = _FLOAT.itemsize
_HALF = 0.5
_DEPTHWISE_KINDS = frozenset({ActivationKind.LEAKY_RELU, ActivationKind.CLIP})
"""What the task ``depthwise`` does to its sums."""


class _Convolution(Protocol):
    """A convolution and an activation that is part of it."""

    def includes(self, activation: Activation) -> bool:
        """Whether an activation is done, too."""

    def __call__(self, x: HostArray, bias: HostArray | None, out: HostArray) -> bool:
        """Convolve (N, *spatial, C) without gaps; False if this cannot."""


def dynamic_convolution(
    geometry: ConvGeometry, weight: HostArray, activations: Sequence[Activation], workspace: Workspace
) -> DynamicConvolution | None:
    """What convolves inputs of every shape; None if no task does.

    Args:
        geometry: of the node.
        weight: (M, C / groups, *kernel), of ConvTranspose (C, M / groups, *kernel).
        activations: what follows.
        workspace: the workspace.
    """
    algorithm = choose_dynamic(geometry, weight.shape, activations)
    if algorithm is None:
        return None
    activation = activations[0] if activations else IDENTITY
    convolve = _KINDS_OF[algorithm](geometry, weight, workspace, activation)
    if not (activation == IDENTITY or convolve.includes(activation) or _is_in_place(activation)):
        return None
    return DynamicConvolution(algorithm, activation, convolve)


def _clip(activation: Activation, out: HostArray) -> None:
    clamp(out, _FLOAT.type(activation.alpha), _FLOAT.type(activation.beta), out)


def _hard_sigmoid(activation: Activation, out: HostArray) -> None:
    np.multiply(out, _FLOAT.type(activation.alpha), out)
    np.add(out, _FLOAT.type(activation.beta), out)
    clamp(out, _FLOAT.type(0), _FLOAT.type(1), out)


def _swish(activation: Activation, out: HostArray) -> None:
    _run_in_place("silu", Silu(out, out, out.size, float(activation.alpha)), out)


def _hard_swish(_activation: Activation, out: HostArray) -> None:
    _run_in_place("hard_swish", Unary(out, out, out.size), out)


def _run_in_place(name: str, arguments: Unary, out: HostArray) -> None:
    """A compiled function of each element, in place on a contiguous array."""
    from ort_sdk_cpu.jit.task import task_function

    task_function(FUNCTIONS, name)(threads_for(ACTIVATION_WORK * out.size), arguments)


_IN_PLACE: dict[ActivationKind, Callable[[Activation, HostArray], None]] = {
    ActivationKind.CLIP: _clip,
    ActivationKind.HARD_SIGMOID: _hard_sigmoid,
    ActivationKind.HARD_SWISH: _hard_swish,
    ActivationKind.SWISH: _swish,
}


def _is_in_place(activation: Activation) -> bool:
    """Whether there is a function of it: the compiled one of HardSwish has ONNX's parameters."""
    is_standard = math.isclose(activation.alpha, 1 / 6, rel_tol=1e-6) and activation.beta == _HALF
    return activation.kind in _IN_PLACE and (activation.kind != ActivationKind.HARD_SWISH or is_standard)


class DynamicConvolution:
    """A convolution and what follows it.

    Args:
        algorithm: of the convolution.
        activation: what follows.
        convolve: the convolution.
    """

    def __init__(self, algorithm: ConvAlgorithm, activation: Activation, convolve: _Convolution) -> None:
        self.algorithm, self._convolve = algorithm, convolve
        self._activation = None if activation == IDENTITY or convolve.includes(activation) else activation
        self._can_add = activation == IDENTITY or self._activation is not None

    def __call__(self, x: HostArray, bias: HostArray | None, added: HostArray | None, out: HostArray) -> bool:
        """Write activation(Conv(x) + bias + added); False if it cannot for arrays like these."""
        to_end = (0, *range(2, x.ndim), 1)
        target = out.transpose(to_end)
        if not target.flags.c_contiguous or not (added is None or self._can_add):
            return False
        if not self._convolve(np.ascontiguousarray(x.transpose(to_end)), bias, target):
            return False
        if added is not None:
            np.add(target, added.transpose(to_end), target)
        if self._activation is not None:
            _IN_PLACE[self._activation.kind](self._activation, target)
        return True


@dataclass(frozen=True, slots=True)
class _Axes:
    """Windows along two axes: the one of a 1-D input is the second."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    out: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]

    @classmethod
    def of(cls, geometry: ConvGeometry, kernel: tuple[int, ...], x: HostArray) -> _Axes:
        windows = geometry.windows.windows(x.shape[1:-1], kernel)

        def both(sizes: tuple[int, ...], first: int = 1) -> tuple[int, ...]:
            return (first, *sizes)[-2:]

        sizes = (both(windows.input_shape), both(windows.kernel_shape), both(windows.output_shape))
        return cls(*sizes, both(windows.strides), both(windows.dilations), both(windows.pads_begin, 0))


class _OverGemm:
    """What convolutions over GEMMs share: activations of their epilogues."""

    def includes(self, activation: Activation) -> bool:
        """Whether the GEMM's epilogue has it."""
        return activation.kind in EPILOGUE_KINDS

    def _epilogue(self, activation: Activation) -> Activation:
        return activation if self.includes(activation) else IDENTITY


class _Pointwise(_OverGemm):
    """1x1: a GEMM."""

    def __init__(self, _geometry: ConvGeometry, weight: HostArray, workspace: Workspace, activation: Activation) -> None:
        columns, inner = weight.shape[:2]
        self._weight = np.ascontiguousarray(weight.reshape(columns, inner).T)
        self._gemm = GemmFunction(BLayout(inner, columns), workspace, activation=self._epilogue(activation))

    def __call__(self, x: HostArray, bias: HostArray | None, out: HostArray) -> bool:
        """As ``_Convolution``."""
        self._gemm(math.prod(x.shape[:-1]), x, self._weight, bias, out)
        return True


class _Im2row(_OverGemm):
    """im2row of lines, and a GEMM with overlapping rows.

    The rows of X under a row of windows are laid side by side, so that each window is contiguous, and overlaps with the next one.
    """

    def __init__(self, geometry: ConvGeometry, weight: HostArray, workspace: Workspace, activation: Activation) -> None:
        self._geometry, self._kernel, self._workspace = geometry, weight.shape[2:], workspace
        square = weight.reshape(*weight.shape[:2], *(1, *self._kernel)[-2:])
        filters = np.ascontiguousarray(square.transpose(0, 3, 2, 1)).reshape(len(weight), -1)
        self._gemm = OverlappingRowsGemm(filters, workspace, activation=self._epilogue(activation))

    def __call__(self, x: HostArray, bias: HostArray | None, out: HostArray) -> bool:
        """As ``_Convolution``."""
        axes, channels = _Axes.of(self._geometry, self._kernel, x), x.shape[-1]
        taps, columns = axes.kernel[0] * channels * _FLOAT_BYTES, axes.out[1]
        work = out.size * math.prod(axes.kernel) * channels
        dilation = axes.dilations[1] if axes.kernel[1] > 1 else 1
        if work > MOST_WORK or min(axes.begins) < 0 or (dilation > 1 and axes.strides[1] > 1):
            return False
        x = x.reshape(len(x), *axes.size, channels)
        if dilation > 1:
            self._dilated(x, axes, dilation, bias, out)
            return True
        lines = lines_of(x, axes, (columns - 1) * axes.strides[1] + axes.kernel[1], self._workspace)
        step = lines.shape[2] * taps
        stack = OverlappingRows(
            len(x) * axes.out[0], columns, axes.strides[1] * taps, step, columns * out.shape[-1] * _FLOAT_BYTES
        )
        self._gemm(stack, lines, bias, out)
        return True

    def _dilated(self, x: HostArray, axes: _Axes, dilation: int, bias: HostArray | None, out: HostArray) -> None:
        """Dilated windows: those of every ``dilation``-th element are contiguous among such elements."""
        count = len(x) * axes.out[0]
        columns = -(-axes.out[1] // dilation)
        width, taps = columns + axes.kernel[1] - 1, axes.kernel[0] * x.shape[-1]
        lines = lines_of(x, axes, width * dilation, self._workspace)[:, :, : width * dilation]
        phases = self._workspace.array("phases of lines", (count, dilation, width, taps), _FLOAT)
        phases[:] = lines.reshape(count, width, dilation, taps).swapaxes(1, 2)
        results = self._workspace.array("phases of results", (count, dilation, columns, out.shape[-1]), _FLOAT)
        step, out_step = width * taps * _FLOAT_BYTES, columns * out.shape[-1] * _FLOAT_BYTES
        self._gemm(OverlappingRows(count * dilation, columns, taps * _FLOAT_BYTES, step, out_step), phases, bias, results)
        rows = out.reshape(count, axes.out[1], out.shape[-1])
        for phase in range(dilation):
            of_phase = rows[:, phase::dilation]
            of_phase[:] = results[:, phase, : of_phase.shape[1]]


def lines_of(x: HostArray, axes: _Axes, width: int, workspace: Workspace) -> HostArray:
    """(N, rows of windows, ``width`` or more, kernel's rows, C), zeros where windows are behind the edges."""
    samples, height, length, channels = x.shape
    is_row = axes.kernel[0] == axes.strides[0] == 1 and axes.out[0] == height
    if is_row and not any(axes.begins) and width <= length:
        return x.reshape(samples, height, length, 1, channels)
    lines = workspace.array("lines", (samples, axes.out[0], width, axes.kernel[0], channels), _FLOAT)
    lines.fill(0)
    (step, _), (dilation, _), (top, left) = axes.strides, axes.dilations, axes.begins
    count = min(width - left, length)
    for tap in range(axes.kernel[0]):
        origin = tap * dilation - top
        first = max(0, -(origin // step))
        stop = min(axes.out[0], (height - 1 - origin) // step + 1)
        if first < stop and count > 0:
            source = x[:, origin + first * step : origin + (stop - 1) * step + 1 : step, :count]
            lines[:, first:stop, left : left + count, tap] = source
    return lines


def _from(array: HostArray, nbytes: int) -> HostArray:
    """The elements of a contiguous array from so many bytes on."""
    flat = array.view()
    flat.shape = (-1,)
    return flat[nbytes // _FLOAT_BYTES :]


class _TransposedApart(_OverGemm):
    """ConvTranspose whose windows meet without overlapping: each element becomes a window of its own."""

    def __init__(self, geometry: ConvGeometry, weight: HostArray, workspace: Workspace, activation: Activation) -> None:
        self._geometry, self._weight_shape = geometry, weight.shape
        square = weight.reshape(*weight.shape[:2], *(1, *weight.shape[2:])[-2:])
        inner, _, self._height, self._width = square.shape
        # One GEMM for each row of the windows.
        rows = [np.ascontiguousarray(row.transpose(2, 1, 0)).reshape(-1, inner) for row in np.moveaxis(square, 2, 0)]
        self._gemms = [OverlappingRowsGemm(row, workspace, activation=self._epilogue(activation)) for row in rows]

    def __call__(self, x: HostArray, bias: HostArray | None, out: HostArray) -> bool:
        """As ``_Convolution``."""
        padding = self._geometry.padding((len(x), x.shape[-1], *x.shape[1:-1]), self._weight_shape)
        kernel = self._weight_shape[2:]
        sizes = tuple(size * taps for size, taps in zip(x.shape[1:-1], kernel, strict=True))
        if padding.strides != kernel or any(padding.begins) or out.shape[1:-1] != sizes:
            return False
        height, width = (1, *x.shape[1:-1])[-2:]
        row, line = x.shape[-1] * _FLOAT_BYTES, width * self._width * out.shape[-1] * _FLOAT_BYTES
        stack = OverlappingRows(len(x) * height, width, row, width * row, self._height * line)
        repeated = None if bias is None else tiled(bias, (self._width,))
        for index, gemm in enumerate(self._gemms):
            gemm(stack, x, repeated, _from(out, index * line))
        return True


class _TransposedOverlapping(_OverGemm):
    """ConvTranspose whose windows overlap: each element of the input and those before it make as many as a step is long."""

    def __init__(self, geometry: ConvGeometry, weight: HostArray, workspace: Workspace, activation: Activation) -> None:
        self._geometry, self._weight_shape, self._workspace = geometry, weight.shape, workspace
        steps = (1, *geometry.windows.per_axis("strides", weight.ndim - 2, 1))[-2:]
        self._steps, square = steps, weight.reshape(*weight.shape[:2], *(1, *weight.shape[2:])[-2:])
        self._kernel = tuple(-(-size // step) for size, step in zip(square.shape[2:], steps, strict=True))
        room = [(0, taps * step - size) for taps, step, size in zip(self._kernel, steps, square.shape[2:], strict=True)]
        whole = np.pad(square, [(0, 0), (0, 0), *room])
        (rows, columns), (down, across) = self._kernel, steps
        # (C, M, rows, down, columns, across), the last element of a window first.
        parted = whole.reshape(*square.shape[:2], rows, down, columns, across)[:, :, ::-1, :, ::-1]
        filters = parted.transpose(3, 5, 1, 4, 2, 0).reshape(down, across * square.shape[1], -1)
        self._gemms = [
            OverlappingRowsGemm(np.ascontiguousarray(each), workspace, activation=self._epilogue(activation)) for each in filters
        ]

    def __call__(self, x: HostArray, bias: HostArray | None, out: HostArray) -> bool:
        """As ``_Convolution``."""
        padding = self._geometry.padding((len(x), x.shape[-1], *x.shape[1:-1]), self._weight_shape)
        size, asked = (1, *x.shape[1:-1])[-2:], (1, *out.shape[1:-1])[-2:]
        begins: tuple[int, ...] = (0, *padding.begins)[-2:]
        counts = tuple(own + taps - 1 for own, taps in zip(size, self._kernel, strict=True))
        whole = tuple(count * step for count, step in zip(counts, self._steps, strict=True))
        fits = all(0 <= begin <= all_ - own for begin, own, all_ in zip(begins, asked, whole, strict=True))
        channels = out.shape[-1]
        shape = (len(x), *whole, channels)
        if not fits or set(padding.dilations) != {1} or math.prod(shape) * _FLOAT_BYTES > MOST_CUT_BYTES:
            return False
        before = tuple(taps - 1 for taps in self._kernel)
        axes = _Axes(size, self._kernel, counts, (1, 1), (1, 1), before)
        lines = lines_of(x.reshape(len(x), *size, -1), axes, counts[1] + before[1], self._workspace)
        made = self._workspace.array("uncut", shape, _FLOAT)
        taps, line = self._kernel[0] * x.shape[-1] * _FLOAT_BYTES, whole[1] * channels * _FLOAT_BYTES
        stack = OverlappingRows(len(x) * counts[0], counts[1], taps, lines.shape[2] * taps, len(self._gemms) * line)
        repeated = None if bias is None else tiled(bias, (self._steps[1],))
        for index, gemm in enumerate(self._gemms):
            gemm(stack, lines, repeated, _from(made, index * line))
        (top, left), (height, width) = begins, asked
        out.reshape(len(x), *asked, channels)[:] = made[:, top : top + height, left : left + width]
        return True


class _Depthwise:
    """One filter per channel."""

    def __init__(self, geometry: ConvGeometry, weight: HostArray, _workspace: Workspace, activation: Activation) -> None:
        self._geometry, self._kernel = geometry, weight.shape[2:]
        self._filters = np.ascontiguousarray(weight.reshape(weight.shape[0], -1).T)
        epilogue = activation if self.includes(activation) else IDENTITY
        self._epilogue = (int(epilogue.kind), float(epilogue.alpha), float(epilogue.beta))

    def includes(self, activation: Activation) -> bool:
        """Whether the task does it."""
        return activation.kind in _DEPTHWISE_KINDS

    def __call__(self, x: HostArray, bias: HostArray | None, out: HostArray) -> bool:
        """As ``_Convolution``."""
        axes = _Axes.of(self._geometry, self._kernel, x)
        sizes = (*axes.size, *axes.kernel, *axes.out, *axes.strides, *axes.dilations, *axes.begins)
        work = out.size * math.prod(axes.kernel)
        threads = threads_for(work, WORK_PER_THREAD)
        words = (x, self._filters, bias, out, x.shape[0], x.shape[-1], *sizes, *self._epilogue)
        _depthwise()(threads, *words)
        return True


@functools.cache
def _depthwise() -> TaskFunction:
    from ort_sdk_cpu.jit.task import task_function

    return task_function(MODULE, "depthwise")


_KINDS_OF: dict[ConvAlgorithm, Callable[[ConvGeometry, HostArray, Workspace, Activation], _Convolution]] = {
    ConvAlgorithm.DYNAMIC_POINTWISE: _Pointwise,
    ConvAlgorithm.DYNAMIC_IM2ROW: _Im2row,
    ConvAlgorithm.DYNAMIC_DEPTHWISE: _Depthwise,
    ConvAlgorithm.DYNAMIC_TRANSPOSED_APART: _TransposedApart,
    ConvAlgorithm.DYNAMIC_TRANSPOSED_OVERLAPPING: _TransposedOverlapping,
}
