"""Arguments of element-wise operators, pooling and softmax of 8-bit tensors."""

from __future__ import annotations

from ort_sdk_cpu.jit.arguments import Pointer, TaskArguments
from ort_sdk_cpu.jit.extents.declaration import Extents, accesses, reads, reads_if_given, writes
from ort_sdk_cpu.jit.extents.sizes import FLOAT
from ort_sdk_cpu.pool.arguments.windows import WindowAxis

__all__ = [
    "MODULE",
    "AveragePool",
    "Binary",
    "GlobalAveragePool",
    "InputScale",
    "LookUp",
    "OutputScale",
    "RowLoops",
    "RowStrides",
    "SoftmaxColumns",
    "SoftmaxRows",
]

MODULE = "quantized.elementwise"
_TABLE = 256


class InputScale(TaskArguments):
    """How an 8-bit input is made real: ((element xor sign) - zero_point) * scale."""

    sign: int
    """128 for int8, 0 for uint8: exclusive or makes elements unsigned."""
    zero_point: float
    """Of unsigned elements: 128 larger for int8."""
    scale: float


class OutputScale(TaskArguments):
    """How a real number is made 8 bits: round(real / scale) + zero_point, saturated."""

    zero_point: float
    scale: float
    lowest: float
    highest: float


class RowLoops(TaskArguments):
    """Loops over four outer dimensions and the elements of a row."""

    rows: int
    """All four outer sizes multiplied."""
    columns: int
    """Elements of a row."""
    size_1: int
    """The second to the fourth of the outer sizes."""
    size_2: int
    size_3: int

    def sizes(self) -> tuple[int, ...]:
        """All five."""
        inner = self.size_1 * self.size_2 * self.size_3
        return (-(-self.rows // inner) if inner else 0, self.size_1, self.size_2, self.size_3, self.columns)


class RowStrides(TaskArguments):
    """Bytes of an operand from element to element along these dimensions."""

    stride_0: int
    stride_1: int
    stride_2: int
    stride_3: int
    """From row to row."""
    in_row: int
    """1, or 0 for an operand with one element per row."""

    def strides(self) -> tuple[int, ...]:
        """All five."""
        return (self.stride_0, self.stride_1, self.stride_2, self.stride_3, 1 if self.in_row else 0)


class LookUp(TaskArguments, module=MODULE, tasks=("look_up",)):
    """A function of bytes by its table."""

    x: Pointer
    out: Pointer
    table: Pointer
    """256 bytes; 0: elements are copied."""
    loops: RowLoops
    x_strides: RowStrides
    """``in_row`` is taken for 1, also for ``out``."""
    out_strides: RowStrides

    def extents(self) -> Extents:
        """What is read and written."""
        sizes = self.loops.sizes()
        yield accesses(self.x, sizes, (*self.x_strides.strides()[:4], 1), 1)
        yield accesses(self.out, sizes, (*self.out_strides.strides()[:4], 1), 1, is_written=True)
        yield reads_if_given(self.table, _TABLE)


class Binary(TaskArguments, module=MODULE, tasks=("binary",)):
    """QLinearAdd and QLinearMul of tensors that broadcast."""

    a: Pointer
    b: Pointer
    out: Pointer
    is_multiplication: int
    a_scale: InputScale
    b_scale: InputScale
    out_scale: OutputScale
    loops: RowLoops
    a_strides: RowStrides
    b_strides: RowStrides
    out_strides: RowStrides
    """``in_row`` is taken for 1."""

    def extents(self) -> Extents:
        """What is read and written."""
        sizes = self.loops.sizes()
        yield accesses(self.a, sizes, self.a_strides.strides(), 1)
        yield accesses(self.b, sizes, self.b_strides.strides(), 1)
        yield accesses(self.out, sizes, (*self.out_strides.strides()[:4], 1), 1, is_written=True)


class GlobalAveragePool(TaskArguments, module=MODULE, tasks=("global_average_pool",)):
    """QLinearGlobalAveragePool."""

    x: Pointer
    """8-bit (samples, channels, pixels), or (samples, pixels, channels)."""
    out: Pointer
    """8-bit (samples, channels)."""
    samples: int
    channels: int
    pixels: int
    pixel_stride: int
    """Bytes from pixel to pixel."""
    channel_stride: int
    """Bytes from channel to channel; one of both strides is 1."""
    x_scale: InputScale
    out_scale: OutputScale

    def extents(self) -> Extents:
        """What is read and written."""
        channel = self.channel_stride
        strides = (self.pixel_stride, 1) if channel == 1 else (1, max(channel, self.pixels))
        sizes = (self.samples, self.pixels, self.channels)
        yield accesses(self.x, sizes, (self.channels * self.pixels, *strides), 1)
        yield writes(self.out, self.samples * self.channels)


class AveragePool(TaskArguments, module=MODULE, tasks=("average_pool_nhwc",)):
    """QLinearAveragePool of NHWC; 1-D input has one row."""

    x: Pointer
    """8-bit (samples, height, width, channels)."""
    out: Pointer
    """8-bit (samples, out height, out width, channels)."""
    row_counts: Pointer
    """float32 (out height): rows that count in each window's mean."""
    column_counts: Pointer
    """float32 (out width)."""
    samples: int
    channels: int
    h: WindowAxis
    w: WindowAxis
    x_scale: InputScale
    out_scale: OutputScale

    def extents(self) -> Extents:
        """What is read and written."""
        yield reads(self.x, self.samples * self.h.size * self.w.size * self.channels)
        yield writes(self.out, self.samples * self.h.out_size * self.w.out_size * self.channels)
        yield reads(self.row_counts, self.h.out_size * FLOAT)
        yield reads(self.column_counts, self.w.out_size * FLOAT)


class SoftmaxRows(TaskArguments, module=MODULE, tasks=("softmax_rows",)):
    """QLinearSoftmax along the last axis."""

    x: Pointer
    """8-bit (rows, columns)."""
    out: Pointer
    """8-bit (rows, columns)."""
    rows: int
    columns: int
    x_scale: InputScale
    out_scale: OutputScale

    def extents(self) -> Extents:
        """What is read and written."""
        nbytes = self.rows * self.columns
        return reads(self.x, nbytes), writes(self.out, nbytes)


class SoftmaxColumns(TaskArguments, module=MODULE, tasks=("softmax_columns",)):
    """QLinearSoftmax along another axis."""

    x: Pointer
    """8-bit (matrices, rows, columns); softmax is along rows."""
    out: Pointer
    """As x."""
    matrices: int
    rows: int
    columns: int
    x_scale: InputScale
    out_scale: OutputScale

    def extents(self) -> Extents:
        """What is read and written."""
        nbytes = self.matrices * self.rows * self.columns
        return reads(self.x, nbytes), writes(self.out, nbytes)
