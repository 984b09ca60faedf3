"""ConvTranspose into a few channels: GEMM into the windows of some rows, and col2im, which adds them up where they overlap."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidArgument, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.conv.arguments.transposed_col2im import MODULE, TransposedCol2im
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.conv.problem import ConvAlgorithm, ConvProblem
from ort_sdk_cpu.conv.specialized import FLOAT, SpecializedConvKernel
from ort_sdk_cpu.jit.native_call import NativeCall
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.task_writer import team_for
from ort_sdk_cpu.memory.workspace import Workspace, WorkspaceBinding

__all__ = ["Col2imKernel"]

_WORK_FIELD = TransposedCol2im.work
"""Looked up once: each run would do it again."""

BLOCK, LANES = 32, 16
"""Pixels of a tile, elements of a vector."""
MOST_BLOCKS = 8
"""Tiles of a row that are kept at once."""
MOST_KEPT_BYTES = 1 << 17
"""Products of some rows that are kept: as many as stay in the second cache."""
TEAM_WORK = 1 << 18
"""Multiplications from which on a team is worth it."""
_POINTED_LATER: dict[str, Any] = dict.fromkeys(
    ("x", "weights", "bias", "out", "work", "x_sample", "x_channel", "x_row", "x_pixel"), 0
)
"""What a plan knows no arrays for."""
_STRIDES = (TransposedCol2im.x_sample, TransposedCol2im.x_channel, TransposedCol2im.x_row, TransposedCol2im.x_pixel)


class Col2imKernel(SpecializedConvKernel):
    """Y[n, m, i * down + k - top, j * across + l - left] is bias[m] + sums over c of X[n, c, i, j] * W[c, m, k, l], added up.

    Arguments as for ``SpecializedConvKernel``.
    """

    own_algorithm = ConvAlgorithm.TRANSPOSED_COL2IM

    def __init__(self, info: KernelInfo, make_general: Callable[[], Any], problem: ConvProblem) -> None:
        super().__init__(info, make_general, problem)
        self._planned: tuple[tuple[int, ...], _Plan | None] | None = None

    def _new_output(self, x: HostArray) -> HostArray:
        return np.empty(self._geometry.output_shape(x.shape, self._shape), FLOAT)

    def _takes(self, x: HostArray) -> bool:
        return bool(x.dtype == FLOAT and self._plan_of(x.shape) is not None)

    def _plan_of(self, shape: tuple[int, ...]) -> _Plan | None:
        """How the task goes about inputs of a shape, the last of which is kept; None for one it does not take."""
        planned = self._planned
        if planned is None or planned[0] != shape:
            planned = self._planned = (shape, _Plan.of(shape, self._shape, self._geometry))
        return planned[1]

    def _is_written(self, out: HostArray) -> bool:
        return bool(out.flags.c_contiguous)

    def _launch(self, x: HostArray) -> _Col2im:
        plan: Any = self._plan_of(x.shape)  # There is one for what is taken.
        return _Col2im(plan, self._workspace)

    def _arranged(self, weight: HostArray) -> HostArray:
        """(C, elements of a window)."""
        return weight.reshape(self._shape[0], -1)


class _Col2im:
    """Inputs of one shape. For one thread at a time.

    Args:
        plan: for the shape.
        workspace: the workspace.
    """

    def __init__(self, plan: _Plan, workspace: Workspace) -> None:
        self._workspace = workspace
        self._work = WorkspaceBinding(workspace, "kept rows", plan.threads * plan.work_bytes)
        self._call = TaskCall(MODULE, "transposed_col2im", plan.arguments, plan.threads)
        self._strides: tuple[int, ...] | None = None
        """Of X, as the task has them."""

    def __call__(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> None:
        """Write a row-major array."""
        self._aim(self._readable(x), matrix, bias, out)
        self._run()

    def bind_arrays(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> Callable[[], Any]:
        """The call on arrays that stay the same."""
        if _strides(x) is None:
            return functools.partial(self, x, matrix, bias, out)
        self._aim(x, matrix, bias, out)
        call = functools.partial(self._run)
        call.keeps_alive = (x, matrix, bias, out)  # type: ignore[attr-defined]
        call.native = NativeCall((self._call.row,), self._prepare)  # type: ignore[attr-defined]
        return call

    def _readable(self, x: HostArray) -> HostArray:
        """X, or a copy that the task can read."""
        if x.strides == self._strides or _strides(x) is not None:
            return x
        copied = self._workspace.array("row-major", x.shape, FLOAT)
        np.copyto(copied, x)
        return copied

    def _aim(self, x: HostArray, matrix: HostArray, bias: HostArray | None, out: HostArray) -> None:
        if x.strides != self._strides:
            for field, step in zip(_STRIDES, _strides(x) or (), strict=False):
                self._call.set(field, step)
            self._strides = x.strides
        call = self._call
        call.point(TransposedCol2im.x, x)
        call.point(TransposedCol2im.weights, matrix)
        call.point(TransposedCol2im.bias, bias)
        call.point(TransposedCol2im.out, out)

    def _prepare(self) -> None:
        """Use the thread's workspace."""
        self._work.bind(self._call, _WORK_FIELD)

    def _run(self) -> None:
        self._prepare()
        self._call.run()


def _strides(x: HostArray) -> tuple[int, ...] | None:
    """Bytes from sample to sample, channel to channel, row to row and pixel to pixel; None where neither of the last follow."""
    samples, channels, *spatial = x.strides
    rows, pixels = _pair(tuple(spatial), 0)
    return (samples, channels, rows, pixels) if FLOAT.itemsize in {channels, pixels} else None


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the task goes about inputs of one shape."""

    arguments: TransposedCol2im
    work_bytes: int
    """Of each thread."""
    threads: int

    @classmethod
    def of(cls, shape: tuple[int, ...], weight: tuple[int, ...], geometry: ConvGeometry) -> _Plan | None:
        """For shapes of X and W; None if the task cannot."""
        if len(shape) != len(weight) or not math.prod(shape) or shape[1] != weight[0]:
            return None
        try:
            padding, made = geometry.padding(shape, weight), geometry.output_shape(shape, weight)
        except InvalidArgument:
            return None  # The other kernel says so.
        if min(made) < 1 or min(padding.begins) < 0:
            return None
        window, result = _pair(weight[2:], 1), _pair(made[2:], 1)
        steps, begins = _pair(padding.strides, 1), _pair(padding.begins, 0)
        (above, below), (before, behind) = (_reach(*axis) for axis in zip(window, steps, begins, strict=True))
        threads = team_for(math.prod(shape) * math.prod(weight[1:]), TEAM_WORK)
        rows, columns = (-(-length // step) for length, step in zip(result, steps, strict=True))
        (height, width), kept, reach = _pair(shape[2:], 1), below - above + 1, behind - before
        blocks = min(rows, threads)
        parts = -(-threads // (blocks * shape[0]))
        chunk = _columns_at_once(columns, width, reach, parts, kept * math.prod(weight[1:]))
        pitch = _rounded(chunk + reach + BLOCK, LANES) * FLOAT.itemsize
        panel = (_rounded(shape[1], LANES) * BLOCK + LANES * LANES) * FLOAT.itemsize
        phases = _rounded(chunk, LANES) * steps[1] * FLOAT.itemsize
        work_bytes = panel + kept * math.prod(weight[1:]) * pitch + phases
        arguments = TransposedCol2im(
            **_POINTED_LATER,
            samples=shape[0],
            channels=shape[1],
            outputs=weight[1],
            height=height,
            width=width,
            taps_down=window[0],
            taps_right=window[1],
            step_down=steps[0],
            step_right=steps[1],
            top=begins[0],
            left=begins[1],
            rows=result[0],
            columns=result[1],
            pitch=pitch,
            kept=kept,
            blocks=blocks,
            chunks=-(-columns // chunk),
            chunk=chunk,
            work_bytes=work_bytes,
            above=above,
            before=before,
            behind=behind,
        )
        return cls(arguments, work_bytes, threads)


def _reach(taps: int, step: int, begin: int) -> tuple[int, int]:
    """First and last element of X along an axis that the results of a step are made of, counted from the step."""
    phases = [divmod(phase + begin, step) for phase in range(step)]
    return min(last - (taps - 1 - tap) // step for last, tap in phases if tap < taps), max(last for last, tap in phases)


def _columns_at_once(columns: int, pixels: int, reach: int, parts: int, taps: int) -> int:
    """Columns of steps that are made at once, so that tiles are full and what is kept stays in the cache."""
    most = max(1, min(MOST_BLOCKS, MOST_KEPT_BYTES // (taps * BLOCK * FLOAT.itemsize)))
    if parts == 1 and pixels <= most * BLOCK:
        return columns
    widths = [max(1, blocks * BLOCK - reach) for blocks in range(1, min(most, -(-columns // (BLOCK * parts))) + 1)]
    return min(widths, key=lambda width: (_tiles(columns, width, reach), -width))


def _tiles(columns: int, width: int, reach: int) -> int:
    """Tiles of a row that is cut into chunks of a width."""
    whole, rest = divmod(columns, width)
    return whole * -(-(width + reach) // BLOCK) + (-(-(rest + reach) // BLOCK) if rest else 0)


def _rounded(count: int, step: int) -> int:
    return -(-count // step) * step


def _pair(sizes: tuple[int, ...], first: int) -> tuple[int, int]:
    """Of rows and columns: a 1-D input is one row."""
    return (*(first,) * (2 - len(sizes)), *sizes)  # type: ignore[return-value]
