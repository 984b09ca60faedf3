"""Depthwise convolutions by a compiled task, alone or with the pointwise ones before and behind them."""

from __future__ import annotations

from typing import Any, NamedTuple

from ort_sdk.api import HostArray
from ort_sdk_cpu.kernel.task_writer import team_for

from .arguments import depthwise_3d, separable
from .arguments.depthwise_3d import Depthwise3d
from .arguments.direct import POINTED_LATER
from .arguments.separable import ImageSizes, Separable
from .base import Variant
from .direct import DirectConvKernel, Positions, TaskPlan
from .epilogue import ConvEpilogue
from .geometry import ConvGeometry, Padding
from .packing import pack_panels, panel_count, panel_width, unpack_panels
from .pointwise import PANEL_ROWS
from .problem import ConvAlgorithm
from .select import DEPTHWISE_LINES, TEAM_WORK

__all__ = ["POSITIONS", "DepthwiseKernel", "Image", "SeparableSizes", "Volume"]

# Fewer rows of the GEMM behind the filters would read all its weights too often.
STRIP_PIXELS = 48
"""Fewest results of the filters that are projected together."""
_FLOAT_BYTES, _VECTOR_BYTES, _ADDRESS_BYTES, _LANES = 4, 64, 8, 16
_NO_EPILOGUE, _NO_IMAGE = ConvEpilogue(), ImageSizes.of_words((0,) * len(ImageSizes.fields))
POSITIONS = Positions.of(Separable, Separable.filters, Separable.window_bias)
"""Of the filters' weight and bias."""


class Image(NamedTuple):
    """An image of few channels, of which a convolution makes what the filters read."""

    shape: tuple[int, ...]
    """(N, C, H, W)."""
    kernel: tuple[int, ...]
    padding: Padding

    def length(self, columns: int) -> int:
        """Elements of a line with its zeros in whole vectors, under so many windows."""
        reach = (columns - 1) * self.padding.strides[1] + self.kernel[1]
        return -(-reach // _LANES) * _LANES

    def arguments(self, columns: int) -> ImageSizes:
        """As the task takes it."""
        (taps_down, taps_right), (step_down, step_right) = self.kernel, self.padding.strides
        (top, left), (height, width) = self.padding.begins, self.shape[2:]
        return ImageSizes(taps_down, taps_right, step_down, step_right, top, left, height, width, self.length(columns))


class Volume(NamedTuple):
    """The axis that volumes have before those of images, in the words of the task's arguments."""

    depth: int
    out_depth: int
    taps: int
    step: int
    dilation: int
    front: int


class SeparableSizes(NamedTuple):
    """A depthwise convolution, and those around it that the task computes as well."""

    x_shape: tuple[int, ...]
    """(N, C of what the task reads, H and W of what the filters read)."""
    channels: int
    """Of the filters."""
    out_shape: tuple[int, ...]
    """(N, M, H, W) of what the task writes."""
    kernel: tuple[int, ...]
    padding: Padding
    projects: bool
    """Whether a pointwise convolution reads what the filters write."""
    image: Image | None = None
    """The image of which a convolution makes what they read; None if a pointwise one does, or none."""
    volume: Volume | None = None
    """The depth of a volume, of whose planes all else is said."""

    @property
    def strip(self) -> int:
        """Rows of results that are projected together."""
        return min(self.out_shape[2], -(-STRIP_PIXELS // self.out_shape[3])) if self.projects else 1

    @property
    def line(self) -> int:
        """Pixels of a line with the zeros around it."""
        (_, across), (_, step), (_, dilation) = self.kernel, self.padding.strides, self.padding.dilations
        reach = (self.out_shape[3] - 1) * step + (across - 1) * dilation + 1
        return max(reach, self.padding.begins[1] + self.x_shape[3])

    def work_bytes(self, strip: int, line: int, *, by_channels: bool) -> int:
        """Workspace of a thread for rows and pixels as ``strip`` and ``line`` say; ``by_channels`` for one panel."""
        panel_bytes, panels = panel_width() * _FLOAT_BYTES, panel_count(self.channels)
        slots = (strip - 1) * self.padding.strides[0] + (self.kernel[0] - 1) * self.padding.dilations[0] + 1
        lines = slots * (1 if by_channels else panels) if self.volume is None else 1 + self.volume.taps * slots
        vectors = 1 + panel_count(self.out_shape[1]) + PANEL_ROWS + 2 * panels + lines * line
        results = strip * self.out_shape[3] * (panels * panel_bytes + _VECTOR_BYTES) if self.projects else 0
        return vectors * panel_bytes + results + DEPTHWISE_LINES * _ADDRESS_BYTES + self._image_bytes

    @property
    def _image_bytes(self) -> int:
        """Of the lines of an image that are under a row of windows."""
        image = self.image
        return 0 if image is None else image.shape[1] * image.kernel[0] * image.length(self.x_shape[3]) * _FLOAT_BYTES

    def plan(self, last: ConvEpilogue, first: ConvEpilogue, middle: ConvEpilogue, threads: int, *, by_channels: bool) -> TaskPlan:
        """The task, but for the arrays of a call.

        Args:
            last: what is done to the results.
            first: to what the filters read.
            middle: to what they write, if that is read by the last convolution.
            threads: how many may work.
            by_channels: whether they share channels in place of rows.
        """
        work_bytes = self.work_bytes(self.strip, self.line, by_channels=by_channels)
        arguments = {**self._arguments(), "work_bytes": work_bytes, "is_by_channels": int(by_channels)}
        arguments |= {"epilogue": last.arguments, "line_activation": first.words, "window_activation": middle.words}
        if self.volume is not None:
            made = Depthwise3d(**arguments, **self.volume._asdict())
            return TaskPlan(depthwise_3d.MODULE, "depthwise_3d", made, POSITIONS, threads, work_bytes * threads)
        return TaskPlan(separable.MODULE, "separable", Separable(**arguments), POSITIONS, threads, work_bytes * threads)

    def _arguments(self) -> dict[str, Any]:
        """Those of the task that say sizes."""
        padding = self.padding
        return {
            **POINTED_LATER,
            **dict.fromkeys(("line_weights", "line_bias", "filters", "window_bias"), 0),
            "samples": self.x_shape[0],
            "height": self.x_shape[2],
            "width": self.x_shape[3],
            "channels": self.x_shape[1],
            "outputs": self.out_shape[1],
            "rows": self.out_shape[2],
            "columns": self.out_shape[3],
            "taps_down": self.kernel[0],
            "taps_right": self.kernel[1],
            "step_down": padding.strides[0],
            "step_right": padding.strides[1],
            "top": padding.begins[0],
            "left": padding.begins[1],
            "filtered": self.channels,
            "dilation_down": padding.dilations[0],
            "dilation_right": padding.dilations[1],
            "strip": self.strip,
            "line": self.line,
            "image": _NO_IMAGE if self.image is None else self.image.arguments(self.x_shape[3]),
        }


class DepthwiseKernel(DirectConvKernel):
    """activation(Conv(X, W, B) + Z) for constant weights of one filter per channel. Arguments as for ``ConvKernel``."""

    own_algorithm = ConvAlgorithm.DEPTHWISE
    identity = "depthwise"
    is_depthwise = True
    positions = POSITIONS

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
