"""What a convolution reads: the input with zeros around it, laid out so that each tap of the kernel is an offset."""

from __future__ import annotations

import itertools
import math

from ort_sdk.api import TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.expressions.nodes import Strided, dense_strides, element_count
from ort_sdk.device.launches import KernelSource, Launch
from ort_sdk.device.products.operands import index_defines, loading, parameters_for
from ort_sdk.device.products.tuning_key import TuningKey, size_bucket
from ort_sdk.opset.nn.windows import Windows

__all__ = ["Columns", "columns_of", "three_axes"]

FLOAT, INT32 = TensorElementType.FLOAT, TensorElementType.INT32
AXES = 3
"""Spatial axes; where there are fewer, those in front have one element."""
SLACK = 32
"""Elements behind the last one, for vectors that begin before it."""
ROWS_AT_ONCE = 256

_PAD = """
/* planes of an input with zeros around them; where windows are several elements apart, the elements of each distance from the
   first one (phase) make a plane, so that windows next to each other are next to each other in all planes */
KERNEL WORKGROUP(LX, LY, 1) void pad(PARAMETERS) {
  index_t group = GROUP(0);
  index_t part = group % PARTS, plane = group / PARTS;
  index_t phase = plane % PHASES, channel = plane / PHASES % CHANNELS, sample = plane / PHASES / CHANNELS;
  index_t px = phase % PHASES_2, py = phase / PHASES_2 % PHASES_1, pz = phase / PHASES_2 / PHASES_1;
  GLOBAL_PTR(const T) x = X + OFFSET + sample * STEP_N + channel * STEP_C;
  GLOBAL_PTR(f32) y = Y + plane * (QUOTIENT_0 * QUOTIENT_1 * QUOTIENT_2);
  index_t last = (part + 1) * ROWS_AT_ONCE < QUOTIENT_0 * QUOTIENT_1 ? (part + 1) * ROWS_AT_ONCE : QUOTIENT_0 * QUOTIENT_1;
  for (index_t row = part * ROWS_AT_ONCE + LANE(1); row < last; row += LY) {
    index_t iz = row / QUOTIENT_1 * STRIDE_0 + pz - PAD_0, iy = row % QUOTIENT_1 * STRIDE_1 + py - PAD_1;
    bool inside = iz >= 0 && iz < SIZE_0 && iy >= 0 && iy < SIZE_1;
    for (index_t c = LANE(0); c < QUOTIENT_2; c += LX) {
      index_t ix = c * STRIDE_2 + px - PAD_2;
      y[row * QUOTIENT_2 + c] = inside && ix >= 0 && ix < SIZE_2 ? (f32)GET(x[iz * STEP_0 + iy * STEP_1 + ix * STEP_2]) : 0.0f;
    }
  }
}
"""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Where a convolution's windows are.

    Tap ``t`` of window ``w`` in channel ``c`` is at
    ``offset + sample * sample_step + c * channel_step + taps[t] + w[0] * steps[0] + w[1] * steps[1] + w[2]``.
    """

    array: Strided
    offset: int
    sample_step: int
    channel_step: int
    steps: tuple[int, int]
    taps: tuple[int, ...]
    windows: tuple[int, int, int]
    """How many along each axis."""

    @property
    def span(self) -> int:
        """Elements from the first window's to the last one's."""
        (depth, height, width), (plane, row) = self.windows, self.steps
        return (depth - 1) * plane + (height - 1) * row + width

    @property
    def has_gaps(self) -> bool:
        """Whether there are elements between windows that no window begins at."""
        return self.span != element_count(self.windows)

    @property
    def tuning_key(self) -> TuningKey:
        """What decides which form is fastest, besides the weight."""
        return (len(self.taps), size_bucket(self.span), int(self.has_gaps))

    def tap_table(self, context: DeviceContext) -> Strided:
        """The taps in the device's memory, as int32."""
        return Strided(context.table(self.taps), (len(self.taps),), INT32)


def three_axes(values: tuple[int, ...], first: int) -> tuple[int, int, int]:
    """One value per spatial axis, of three."""
    z, y, x = (*(first,) * (AXES - len(values)), *values)
    return z, y, x


def columns_of(context: DeviceContext, x: Strided, windows: Windows) -> Columns:
    """The windows of (N, C, *spatial) with up to three spatial axes: in the array itself where its strides allow, or in a copy.

    Args:
        context: of the device.
        x: floating-point numbers with any strides.
        windows: their geometry.
    """
    size, kernel = three_axes(windows.input_shape, 1), three_axes(windows.kernel_shape, 1)
    strides, dilations = three_axes(windows.strides, 1), three_axes(windows.dilations, 1)
    begins, output = three_axes(windows.pads_begin, 0), three_axes(windows.output_shape, 1)
    batch, channels = x.shape[:2]
    is_row_major = dense_strides(windows.input_shape) == tuple(x.strides[2:])
    extents = windows.extents
    fits = all(extent <= whole for extent, whole in zip(extents, windows.input_shape, strict=True))
    if x.element_type is FLOAT and set(strides) == {1} and not any(begins) and fits and is_row_major:
        own = Columns(
            x,
            x.offset,
            x.strides[0],
            x.strides[1],
            (size[1] * size[2], size[2]),
            _taps(kernel, dilations, strides, (1, 1, 1), (size[0], size[1], size[2])),
            output,
        )
        if own.span >= SLACK:
            return own
    phases = tuple(1 + max((t * d) % s for t in range(k)) for k, d, s in zip(kernel, dilations, strides, strict=True))
    quotients = tuple(
        out + max((t * d) // s for t in range(k)) for out, k, d, s in zip(output, kernel, dilations, strides, strict=True)
    )
    plane = math.prod(quotients)
    count = math.prod(phases)
    target = context.new((batch * channels * count * plane + SLACK,), FLOAT)
    steps = (*(0,) * (AXES - len(windows.input_shape)), *x.strides[2:])
    _pad(context, x, target, size, strides, begins, steps, phases, quotients)
    return Columns(
        target,
        0,
        channels * count * plane,
        count * plane,
        (quotients[1] * quotients[2], quotients[2]),
        _taps(kernel, dilations, strides, phases, quotients),
        output,
    )


def _taps(
    kernel: tuple[int, ...], dilations: tuple[int, ...], strides: tuple[int, ...], phases: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[int, ...]:
    """Offset of each tap, in row-major order."""
    offsets = []
    for tap in itertools.product(*map(range, kernel)):
        places = [divmod(t * d, s) for t, d, s in zip(tap, dilations, strides, strict=True)]
        phase = sum(p * step for (_, p), step in zip(places, dense_strides(phases), strict=True))
        inner = sum(q * step for (q, _), step in zip(places, dense_strides(sizes), strict=True))
        offsets.append(phase * math.prod(sizes) + inner)
    return tuple(offsets)


def _pad(
    context: DeviceContext,
    x: Strided,
    target: Strided,
    size: tuple[int, ...],
    strides: tuple[int, ...],
    begins: tuple[int, ...],
    steps: tuple[int, ...],
    phases: tuple[int, ...],
    quotients: tuple[int, ...],
) -> None:
    parameters = parameters_for([x, target])
    macros: dict[str, str | int] = {"X": parameters.memory(x.held, x.element_type)}
    macros["Y"] = parameters.memory(target.held, FLOAT, written=True)
    parts = -(-quotients[0] * quotients[1] // ROWS_AT_ONCE)
    numbers = {"PARTS": parts, "CHANNELS": x.shape[1], "OFFSET": x.offset, "STEP_N": x.strides[0], "STEP_C": x.strides[1]}
    for axis in range(AXES):
        numbers |= {f"SIZE_{axis}": size[axis], f"PAD_{axis}": begins[axis], f"STEP_{axis}": steps[axis]}
        numbers |= {f"QUOTIENT_{axis}": quotients[axis]}
        macros |= {f"PHASES_{axis}": phases[axis], f"STRIDE_{axis}": strides[axis]}
    macros |= {name: parameters.index(number) for name, number in numbers.items()}
    most = context.device.most_lanes
    lanes = (1, 1) if context.device.is_cpu else (min(32, most), max(1, min(8, most // 32)))
    macros |= {"PHASES": math.prod(phases), "LX": lanes[0], "LY": lanes[1], "ROWS_AT_ONCE": ROWS_AT_ONCE}
    macros["PARAMETERS"] = parameters.text
    source = KernelSource("pad", _PAD, (*macros.items(), *loading(x), *index_defines(parameters)))
    groups = x.shape[0] * x.shape[1] * math.prod(phases) * parts
    context.submit(Launch(source, (groups, 1), lanes, tuple(parameters.arguments), tuple(parameters.writes)))
