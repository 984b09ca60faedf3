"""Convolutions with one filter per channel by a compiled task, alone or with those of one tap before and behind them."""

from __future__ import annotations

from typing import NamedTuple

from ort_sdk.api import HostArray
from ort_sdk_cpu.kernel.task_writer import team_for
from ort_sdk_cpu.kernel.work_stealing import CLAIMS

from .base import Variant
from .direct import DirectConvKernel, TaskPlan
from .epilogue import ConvEpilogue
from .geometry import ConvGeometry, Padding
from .packing import pack_panels, panel_width, panels_of, unpack_panels
from .pointwise import PANEL_ROWS
from .select import DEPTHWISE_LINES, TEAM_WORK, ConvAlgorithm

__all__ = ["DepthwiseKernel", "Picture", "SeparableSizes", "Volume"]

STRIP_PIXELS = 48
"""Results from which on their product with the next weights is worth beginning."""
_FLOAT_BYTES, _VECTOR_BYTES, _ADDRESS_BYTES, _LANES = 4, 64, 8, 16
_NO_EPILOGUE, _NO_PICTURE = ConvEpilogue(), (0,) * 9


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
        return vectors * panel_bytes + results + DEPTHWISE_LINES * _ADDRESS_BYTES + self._picture_bytes

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


class DepthwiseKernel(DirectConvKernel):
    """activation(Conv(X, W, B) + Z) for constant weights of one filter per channel. Arguments as for ``ConvKernel``."""

    own_algorithm = ConvAlgorithm.DEPTHWISE
    identity = "depthwise"
    is_depthwise = True
    weight_position, bias_position = 29, 30

    def pack_weight(self, weight: HostArray) -> HostArray:
        """Weights (C, 1, *kernel) in panels: uint8."""
        return pack_panels(weight, self.constant_shape[0])

    def unpack_weight(self, packed: HostArray) -> HostArray:
        """The inverse."""
        return unpack_panels(packed, self.constant_shape)

    def plan(self, variant: Variant, out_shape: tuple[int, ...]) -> TaskPlan | None:
        """The task, but for the arrays of a call; None for less than no zeros around X."""
        sizes = _sizes_of(self.geometry, variant, out_shape)
        if sizes is None:
            return None
        threads = team_for(self.work(variant.x_shape, variant.weight_shape), TEAM_WORK)
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
