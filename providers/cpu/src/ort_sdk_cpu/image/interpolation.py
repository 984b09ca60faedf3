"""Linear and cubic Resize of 2-D images, float32 or bytes, by compiled tasks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, Slot
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.tensor.resize import Resizer
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.layouts.memory import is_channels_last
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import Writer
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.memory.workspace import Workspace, shared_workspace

from .arguments.interpolation import MODULE, Interpolation, InterpolationOfBytes

__all__ = ["NCHW", "NHWC", "InterpolationWriter", "NchwBytesWriter", "interpolated", "interpolation_of"]

NHWC, NCHW, NHWC_BYTES = "interpolate_nhwc", "interpolate_nchw", "interpolate_nhwc_bytes"
"""The tasks."""
ELEMENT_WORK = 4
"""Elements of a few instructions each that one of the output is worth."""

EXACT_PARTS = 64
"""Weights that are whole numbers of such parts give sums of bytes exactly: truncated ones do not depend on the order."""

Table = tuple[HostArray, HostArray]

_FLOAT = np.dtype(np.float32)


def _sign(dtype: np.dtype[Any]) -> int:
    return 128 if dtype == np.int8 else 0


@dataclass(frozen=True, slots=True)
class ImageInterpolation:
    """How images (samples, channels, rows, columns) are interpolated.

    Args:
        shape: of the input.
        output_shape: of the output.
        rows: indices and weights of what makes each row.
        columns: the same for columns.
        transposed_columns: the same, (taps, columns).
        is_last: whether the channels are the last axis, and not the second.
    """

    shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    rows: Table
    columns: Table
    transposed_columns: Table
    is_last: bool = False

    def words(self, *, is_channels_last: bool) -> tuple[Any, ...]:
        """Of the task's ``Interpolation``, from ``images`` on."""
        samples, channels, *sizes = self.shape
        images, pixel = (samples, channels) if is_channels_last else (samples * channels, 1)
        columns = self.columns if is_channels_last else self.transposed_columns
        rows_taps, columns_taps = (*self.rows, self.rows[0].shape[1]), (*columns, self.columns[0].shape[1])
        return (images, *sizes, *self.output_shape[2:], pixel, *rows_taps, *columns_taps)

    def row_bytes(self, *, is_channels_last: bool) -> int:
        """Of workspace for each thread."""
        width = self.shape[3] * (self.shape[1] if is_channels_last else 1)
        return (width + 31) // 16 * 64

    @property
    def is_exact(self) -> bool:
        """Whether sums of bytes are not rounded."""
        return all(not np.modf(table[1] * EXACT_PARTS)[0].any() for table in (self.rows, self.columns))

    @property
    def work(self) -> int:
        """As many elements of a few instructions take as long."""
        return ELEMENT_WORK * int(np.prod(self.output_shape))


def interpolation_of(resizer: Resizer) -> Callable[..., ImageInterpolation | None]:
    """``found(shape, *parameters)``: how images of a shape are interpolated; None if they are not, or other axes are, too."""

    @functools.lru_cache(maxsize=8)
    def kept(shape: tuple[int, ...], *parameters: tuple[Any, ...] | None) -> ImageInterpolation | None:
        made = resizer.interpolation(shape, *(None if values is None else np.array(values) for values in parameters))
        if made is None or len(shape) != 4:
            return None
        is_last = 1 in made.axes
        along = (1, 2) if is_last else (2, 3)
        if not set(made.axes) <= set(along):
            return None
        rows, columns = (_table(made.axes.get(axis), shape[axis]) for axis in along)
        indices, weights = columns
        transposed = (np.ascontiguousarray(indices.T), np.ascontiguousarray(weights.T))
        sizes = [_channels_second(each) if is_last else each for each in (shape, made.output_shape)]
        return ImageInterpolation(sizes[0], sizes[1], rows, columns, transposed, is_last)

    def found(shape: tuple[int, ...], *parameters: HostArray | None) -> ImageInterpolation | None:
        return kept(shape, *(None if values is None else tuple(values.tolist()) for values in parameters))

    return found


def _channels_second(shape: tuple[int, ...]) -> tuple[int, ...]:
    samples, rows, columns, channels = shape
    return samples, channels, rows, columns


def _table(given: Table | None, size: int) -> Table:
    if given is None:
        return np.arange(size, dtype=np.int32).reshape(-1, 1), np.ones((size, 1), np.float32)
    return np.ascontiguousarray(given[0], np.int32), np.ascontiguousarray(given[1], np.float32)


def interpolated(resizer: Resizer, otherwise: Callable[..., HostArray]) -> Callable[..., HostArray]:
    """A node's function by the task, and by another one for what the task is not for."""
    find, results, workspace = interpolation_of(resizer), ResultAllocator(), shared_workspace()

    def run(x: HostArray, *parameters: HostArray | None) -> HostArray:
        last = x.ndim == 4 and is_channels_last(x)
        if x.ndim != 4 or not (last or x.flags.c_contiguous) or not is_worth_a_task(x.size, MODULE, NHWC if last else NCHW):
            return otherwise(x, *parameters)
        made = find(x.shape, *parameters)
        if made is None or (made.is_last and last and not x.flags.c_contiguous):
            return otherwise(x, *parameters)
        from ort_sdk_cpu.jit.task import task_function

        samples, channels, *sizes = made.output_shape
        last = last or made.is_last
        out = results.empty((samples, *sizes, channels) if last else made.output_shape)
        threads = threads_for(made.work)
        work = workspace.buffer(MODULE, made.row_bytes(is_channels_last=last) * threads)
        arguments = Interpolation.of_words((x, out, work, *made.words(is_channels_last=last)))
        task_function(MODULE, NHWC if last else NCHW)(threads, arguments)
        return np.moveaxis(out, -1, 1) if last and not made.is_last else out

    return run


class InterpolationWriter(TaskWriter):
    """Writes images of one shape and layout.

    Args:
        made: how.
        given: how many inputs there are.
        otherwise: writes other layouts.
        is_channels_last: the layout, whichever axis the channels are.
        dtype: of the elements: float32, or bytes, which have to be channels last.
    """

    def __init__(
        self, made: ImageInterpolation, given: int, otherwise: Writer, *, is_channels_last: bool, dtype: np.dtype[Any] = _FLOAT
    ) -> None:
        self._is_permuted = is_channels_last and not made.is_last
        name, signs = (NHWC if is_channels_last else NCHW, ()) if dtype == _FLOAT else (NHWC_BYTES, (_sign(dtype),))
        threads = threads_for(made.work)
        self._kept = (made, np.empty(made.row_bytes(is_channels_last=is_channels_last) * threads + 64, np.uint8))
        words = (Operand(0), Operand(given), self._kept[1], *made.words(is_channels_last=is_channels_last), *signs)
        arguments = InterpolationOfBytes if signs else Interpolation
        super().__init__(MODULE, name, arguments.of_words(words), otherwise, threads)

    def _in_memory_order(self, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        """Arrays with their axes from the outermost in memory to the innermost."""
        if not self._is_permuted:
            return arrays
        return (np.moveaxis(arrays[0], 1, -1), *arrays[1:-1], np.moveaxis(arrays[-1], 1, -1))

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        ordered = self._in_memory_order(arrays)
        if ordered[0].flags.c_contiguous and ordered[-1].flags.c_contiguous:
            super().__call__(*ordered)
        else:
            self._otherwise(*arrays)

    def bind_arrays(self, *arrays: HostArray | None) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None for another layout."""
        return super().bind_arrays(*self._in_memory_order(arrays))

    def bind_slots(self, slots: Sequence[Slot]) -> Callable[[], Any] | None:
        """None: the writer looks at each array."""
        return None


class NchwBytesWriter:
    """Writes NCHW of bytes by way of float32, where that rounds nothing.

    Args:
        made: how; its sums are exact.
        workspace: the workspace.
        otherwise: writes other layouts.
    """

    def __init__(self, made: ImageInterpolation, workspace: Workspace, otherwise: Writer) -> None:
        self._made, self._workspace, self._otherwise = made, workspace, otherwise
        self._writer = InterpolationWriter(made, 1, otherwise, is_channels_last=False)
        self._is_within = all((table[1] >= 0).all() for table in (made.rows, made.columns))

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        x, out = arrays[0], arrays[-1]
        if not (x.flags.c_contiguous and out.flags.c_contiguous):
            self._otherwise(*arrays)
            return
        real = self._workspace.array("real pixels", x.shape, _FLOAT)
        sums = self._workspace.array("real sums", out.shape, _FLOAT)
        np.copyto(real, x)
        self._writer(real, sums)
        if not self._is_within:
            limits = np.iinfo(out.dtype)
            np.clip(sums, limits.min, limits.max, out=sums)
        np.copyto(out, sums, casting="unsafe")
