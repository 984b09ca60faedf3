"""Convolutions with one filter per channel by a compiled task, alone or with those of one tap before and behind them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.kernel.work_stealing import CLAIMS
from ort_sdk_cpu.onednn.constants import Argument
from ort_sdk_cpu.onednn.library import is_loaded
from ort_sdk_cpu.platform import libraries

from .direct import TaskPlan
from .epilogue import ConvEpilogue
from .geometry import ConvGeometry, Padding
from .onednn import PICTURE_RANK, TEAM_WORK, VOLUME_RANK, WEIGHT, Variant
from .pointwise import PANEL_ROWS, in_panels, out_of_panels, panel_width, panels_of
from .winograd import WinogradKernel

__all__ = ["MOST_LINES", "DepthwiseKernel", "Picture", "SeparableSizes", "Volume", "is_for_depthwise"]

LEAST_CHANNELS = 8
LEAST_WORK = 1 << 13
"""Multiplications and additions from which on the task is worth it where oneDNN is loaded: else each channel's windows are
copied."""
MOST_LINES = 64
"""Under a row of windows: rows of taps, of a picture those of all its channels."""
STRIP_PIXELS = 48
"""Results from which on their product with the next weights is worth beginning."""
_FLOAT_BYTES, _VECTOR_BYTES, _ADDRESS_BYTES, _LANES = 4, 64, 8, 16
_NO_EPILOGUE, _NO_PICTURE = ConvEpilogue(), (0,) * 9


def is_for_depthwise(info: KernelInfo) -> bool:
    """Whether a Conv node's weight is constant and has one filter per channel of a picture or a volume."""
    tensor = info.constants.get(WEIGHT)
    if tensor is None or info.op_type == "ConvTranspose" or len(tensor.shape) not in {PICTURE_RANK, VOLUME_RANK}:
        return False
    channels, depth, *rows, _ = tensor.shape
    is_fit = depth == 1 and channels == int(info.attribute("group", 1)) >= LEAST_CHANNELS and math.prod(rows) <= MOST_LINES
    return is_fit and libraries.numba().is_usable and ConvEpilogue.of(info) is not None


class Picture(NamedTuple):
    """What the filters' input is made of by a convolution of few channels."""

    shape: tuple[int, ...]
    """(N, C, H, W)."""
    kernel: tuple[int, ...]
    padding: Padding

    def numbers(self, columns: int) -> int:
        """Of a line with its zeros in whole vectors, under so many windows."""
        reach = (columns - 1) * self.padding.strides[1] + self.kernel[1]
        return -(-reach // _LANES) * _LANES

    def arguments(self, columns: int) -> tuple[int, ...]:
        """As the task takes them."""
        padding = self.padding
        return (*self.kernel, *padding.strides, *padding.begins, *self.shape[2:], self.numbers(columns))


class Volume(NamedTuple):
    """The axis that volumes have before those of pictures."""

    size: int
    out_size: int
    taps: int
    stride: int
    dilation: int
    begin: int


class SeparableSizes(NamedTuple):
    """Of a convolution with a filter per channel, and of those around it that the task does as well."""

    x_shape: tuple[int, ...]
    """(N, C of what the task reads, H and W of what the filters read)."""
    channels: int
    """Of the filters."""
    out_shape: tuple[int, ...]
    """(N, M, H, W) of what the task writes."""
    kernel: tuple[int, ...]
    padding: Padding
    projects: bool
    """Whether a convolution of one tap reads what the filters write."""
    picture: Picture | None = None
    """What is convolved to make what they read, unless that is of one tap."""
    volume: Volume | None = None
    """Where all else is said of planes of a volume, which are convolved alone."""

    @property
    def strip(self) -> int:
        """Rows of results that are multiplied together."""
        return min(self.out_shape[2], -(-STRIP_PIXELS // self.out_shape[3])) if self.projects else 1

    @property
    def line(self) -> int:
        """Pixels of a line with the zeros around it."""
        (_, across), (_, step), (_, dilation) = self.kernel, self.padding.strides, self.padding.dilations
        reach = (self.out_shape[3] - 1) * step + (across - 1) * dilation + 1
        return max(reach, self.padding.begins[1] + self.x_shape[3])

    def work_bytes(self, strip: int, line: int, *, by_channels: bool) -> int:
        """Working memory of a thread for rows and pixels as ``strip`` and ``line`` say; ``by_channels`` for one panel."""
        panel_bytes, panels = panel_width() * _FLOAT_BYTES, panels_of(self.channels)
        slots = (strip - 1) * self.padding.strides[0] + (self.kernel[0] - 1) * self.padding.dilations[0] + 1
        lines = slots * (1 if by_channels else panels) if self.volume is None else 1 + self.volume.taps * slots
        vectors = 1 + panels_of(self.out_shape[1]) + PANEL_ROWS + 2 * panels + lines * line
        results = strip * self.out_shape[3] * (panels * panel_bytes + _VECTOR_BYTES) if self.projects else 0
        return vectors * panel_bytes + results + MOST_LINES * _ADDRESS_BYTES + self._picture_bytes

    @property
    def _picture_bytes(self) -> int:
        """Of the lines of a picture that are under a row of windows."""
        picture = self.picture
        return 0 if picture is None else picture.shape[1] * picture.kernel[0] * picture.numbers(self.x_shape[3]) * _FLOAT_BYTES

    def plan(self, last: ConvEpilogue, first: ConvEpilogue, middle: ConvEpilogue, threads: int, *, by_channels: bool) -> TaskPlan:
        """The task, but for the arrays of a call.

        Args:
            last: what is done to the results.
            first: to what the filters read.
            middle: to what they write, if that is read by the last convolution.
            threads: how many may work.
            by_channels: whether they share channels in place of rows.
        """
        padding = self.padding
        (samples, _, *out_size), (_, channels, *size) = self.out_shape, self.x_shape
        geometry = (samples, *size, channels, self.out_shape[1], *out_size, *self.kernel, *padding.strides, *padding.begins)
        strip, line = self.strip, self.line
        work_bytes = self.work_bytes(strip, line, by_channels=by_channels)
        filters = (0, 0, 0, 0, self.channels, *padding.dilations, strip, int(by_channels))
        picture = _NO_PICTURE if self.picture is None else self.picture.arguments(self.x_shape[3])
        others = (*first.activation_arguments, *middle.activation_arguments, line, *picture)
        arguments = (0, 0, 0, 0, 0, 0, *geometry, work_bytes, *last.arguments, *filters, *others)
        if self.volume is not None:
            return TaskPlan("volumes", "separable_volume", (*arguments, *self.volume), threads, work_bytes * threads)
        return TaskPlan("separable", "separable", (*arguments, *CLAIMS), threads, work_bytes * threads)


class DepthwiseKernel(WinogradKernel):
    """activation(Conv(X, W, B) + Z) for constant weights of one filter per channel. Arguments as for ``ConvKernel``."""

    identity = "depthwise"
    is_depthwise = True
    places: Mapping[int, int] = {Argument.SRC: 0, Argument.WEIGHTS: 29, Argument.BIAS: 30, Argument.DST: 4}

    def _is_worth_it(self, x_shape: tuple[int, ...], weight_shape: tuple[int, ...]) -> bool:
        is_cheap = is_loaded() and self.work(x_shape, weight_shape) >= LEAST_WORK
        return is_cheap or super()._is_worth_it(x_shape, weight_shape)

    def transform(self, weight: HostArray) -> HostArray:
        """Weights (C, 1, *kernel) in panels: uint8."""
        return in_panels(weight, self.constant_shape[0])

    def restore(self, transformed: HostArray) -> HostArray:
        """The inverse."""
        return out_of_panels(transformed, self.constant_shape)

    def task(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task, but for the arrays of a call; None for less than no zeros around X."""
        sizes = _sizes_of(self.geometry, variant, out_shape)
        if sizes is None:
            return None
        threads = libraries.thread_count() if self.work(variant.x_shape, variant.weight_shape) >= TEAM_WORK else 1
        return sizes.plan(self.epilogue(), _NO_EPILOGUE, _NO_EPILOGUE, threads, by_channels=False)


def _sizes_of(geometry: ConvGeometry, variant: Variant, out_shape: tuple[int, ...]) -> SeparableSizes | None:
    """Of a convolution alone; None for less than no zeros around X."""
    padding = geometry.padding(variant.x_shape, variant.weight_shape)
    if min(*padding.begins, *padding.ends) < 0:
        return None
    kernel = variant.weight_shape[-2:]
    plane = Padding(padding.strides[-2:], padding.dilations[-2:], padding.begins[-2:], padding.ends[-2:])
    (samples, channels, *sizes), out_sizes = variant.x_shape, out_shape[2:]
    volume = None
    if len(sizes) > len(kernel):
        taps = variant.weight_shape[2]
        volume = Volume(sizes[0], out_sizes[0], taps, padding.strides[0], padding.dilations[0], padding.begins[0])
    x_shape, y_shape = (samples, channels, *sizes[-2:]), (samples, channels, *out_sizes[-2:])
    return SeparableSizes(x_shape, channels, y_shape, kernel, plane, projects=False, volume=volume)
