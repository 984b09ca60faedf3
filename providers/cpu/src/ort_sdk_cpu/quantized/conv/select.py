"""Which algorithm computes a convolution of 8-bit integers: the one place that chooses, with all thresholds of the family.

Most 8-bit convolutions, and all 8-bit GEMMs with a constant B, are one implicit GEMM over packed panels (``direct``,
``dequantized``), by vectors or by AMX. Others are oneDNN's: those of groups, and sums in int32.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.onednn.library import is_loaded
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import has_amx, has_vnni

from .arguments.vnni import MODULE as VNNI_MODULE
from .packing import PANEL
from .tiling import TILE_ROWS, TILE_STEPS, Image, Tiling, is_interleaved

__all__ = [
    "DIRECT",
    "PLAIN",
    "WITH_ZERO_POINTS",
    "ConvIntegerProblem",
    "QLinearConvProblem",
    "QuantizedConvAlgorithm",
    "algorithm_of",
    "is_direct",
    "is_large",
    "panel_for",
    "select_conv_integer",
    "select_qlinear_conv",
    "task_name",
    "threads_for_work",
    "tiling_for",
    "with_amx",
]

PLAIN, WITH_ZERO_POINTS = "quantized_conv", "quantized_conv_with_zero_points"
"""Tasks of direct convolutions with an 8-bit result."""
# Balances what NumPy takes for so many, in each run, with loading oneDNN or a task once per process.
MINIMUM_WORK = 1 << 20
"""Multiplications and additions from which on a QLinearConv is worth what has to be loaded for it."""
# The opset convolves such in a wider type, or group by group, so that less work is worth it.
MINIMUM_SLOW_WORK = 1 << 14
"""The same of weights that do not fit into 8 bits less their zero point, and of several groups."""
# The same balance: a ConvInteger is mostly one of several, which share what is loaded.
MINIMUM_INTEGER_WORK = 1 << 16
"""The same of a ConvInteger."""
# Vectors do 128 of them with each instruction: so many take some times as long as waking a thread up.
TEAM_WORK = 1 << 22
"""Multiplications and additions from which on several threads are worth waking."""
# A tile takes as long whatever part of it is used, and the unit has to be configured and released for each run.
LEAST_OF_TILE, LEAST_AMX_WORK = 96, 1 << 21
"""Rows times steps of a tile, of 256, and multiplications and additions from which on AMX is faster than vectors."""
# Narrower panels take longer per column: each broadcast of x serves fewer of them.
_PANELS = {PANEL: (64, 64), 32: (34, 39), 16: (18, 28)}
"""Columns of a panel → relative time of a step with one: for x of uint8, and for int8 or weights with zero points."""
_MOST_AXES = 4
_INT8 = np.dtype(np.int8)
_BYTES = (np.dtype(np.uint8), _INT8)


class QuantizedConvAlgorithm(enum.StrEnum):
    """How a convolution of 8-bit integers is computed."""

    VNNI = "vnni direct"
    """An implicit GEMM over packed panels by vector instructions; without VNNI by the instructions there are."""
    AMX = "amx direct"
    """The same by AMX."""
    ONEDNN = "onednn"
    """oneDNN's convolution, for groups and for int32 results."""
    ONEDNN_SPLIT = "onednn, split weights"
    """Weights that need 9 bits, or whose sums float32 does not hold, are two or three of int8: as many convolutions."""
    FLOAT32 = "float32"
    """Exact in float32, by convolutions that take sizes as arguments, where each run has another shape."""
    NUMPY_UNTIL_SHAPES_VARY = "numpy, float32 where shapes vary"
    """Without VNNI oneDNN is not exact: NumPy's, and ``FLOAT32`` once shapes vary, where its tasks take the problem."""
    NUMPY = "numpy"


DIRECT = frozenset({QuantizedConvAlgorithm.VNNI, QuantizedConvAlgorithm.AMX})


@dataclass(frozen=True, slots=True)
class QLinearConvProblem:
    """A QLinearConv with constant weights, on one input."""

    geometry: ConvGeometry
    weight_shape: tuple[int, ...]
    x_shape: tuple[int, ...]
    x_dtype: np.dtype[Any]
    is_channels_last: bool
    is_wide: bool = False
    """Whether weights less their zero points do not fit into int8."""

    @property
    def output_shape(self) -> tuple[int, ...]:
        """(N, M, *spatial)."""
        return self.geometry.output_shape(self.x_shape, self.weight_shape)


@dataclass(frozen=True, slots=True)
class ConvIntegerProblem:
    """A ConvInteger with constant weights, on one input."""

    geometry: ConvGeometry
    weight_shape: tuple[int, ...]
    x_shape: tuple[int, ...]
    x_dtype: np.dtype[Any]
    is_channels_last: bool
    is_split: bool = False
    """Whether the weight is the sum of several of int8."""


def _fits(problem: QLinearConvProblem | ConvIntegerProblem) -> bool:
    """Whether X and the weight fit together: what does not is the opset's to refuse."""
    x_shape, shape, geometry = problem.x_shape, problem.weight_shape, problem.geometry
    if len(x_shape) != len(shape) or 0 in x_shape or problem.x_dtype not in _BYTES:
        return False
    return x_shape[1] == geometry.input_channels(shape) and shape[0] % geometry.groups == 0


def _work(output_shape: Sequence[int], weight_shape: Sequence[int]) -> int:
    """Multiplications and additions."""
    return 2 * math.prod((output_shape[0], *output_shape[2:], *weight_shape))


def select_qlinear_conv(problem: QLinearConvProblem) -> QuantizedConvAlgorithm:
    """The algorithm of a QLinearConv."""
    if not _fits(problem):
        return QuantizedConvAlgorithm.NUMPY
    has_kernels, is_grouped = libraries.compiled_kernels().is_usable, problem.geometry.groups > 1
    # oneDNN's sums are exact with VNNI only: without, it adds pairs of products in 16 bits, which saturate.
    if problem.is_wide and not (has_vnni() and has_kernels):
        return QuantizedConvAlgorithm.NUMPY
    output_shape, is_slow_otherwise = problem.output_shape, problem.is_wide or is_grouped
    is_task = has_kernels and is_direct(problem.weight_shape, problem.geometry, problem.x_shape)
    # NHWC in memory tells that a fast convolution came before, whose code is loaded: small work is worth it then.
    if not problem.is_channels_last:
        least = MINIMUM_SLOW_WORK if is_slow_otherwise else MINIMUM_WORK
        is_worth_it = _work(output_shape, problem.weight_shape) >= least
        is_cheap = (is_task and _is_at_hand(problem)) or (is_slow_otherwise and is_loaded())
        if not (is_worth_it or is_cheap):
            return QuantizedConvAlgorithm.NUMPY
    if is_task:
        return _vectors_or_amx(problem, output_shape)
    # oneDNN takes int8 weights only: those that need 9 bits are split, one convolution for each part.
    if problem.is_wide:
        return QuantizedConvAlgorithm.ONEDNN_SPLIT
    return QuantizedConvAlgorithm.ONEDNN if has_vnni() else QuantizedConvAlgorithm.NUMPY_UNTIL_SHAPES_VARY


def _is_at_hand(problem: QLinearConvProblem) -> bool:
    """Whether the task costs little to have."""
    from ort_sdk_cpu.jit.task_code import is_compiled

    return is_compiled(VNNI_MODULE, task_name(WITH_ZERO_POINTS if problem.is_wide else PLAIN, problem.x_dtype))


def _vectors_or_amx(problem: QLinearConvProblem, output_shape: Sequence[int]) -> QuantizedConvAlgorithm:
    # Only a tiling says whether lines divide into chunks that fill a tile, so one is made to ask it.
    if not has_amx():
        return QuantizedConvAlgorithm.VNNI
    shapes = problem.x_shape, problem.weight_shape, output_shape
    return algorithm_of(tiling_for(problem.geometry, *shapes, is_channels_last=problem.is_channels_last))


def select_conv_integer(problem: ConvIntegerProblem) -> QuantizedConvAlgorithm:
    """The algorithm of a ConvInteger whose shapes come more than once."""
    if not _fits(problem):
        return QuantizedConvAlgorithm.NUMPY
    output_shape = problem.geometry.output_shape(problem.x_shape, problem.weight_shape)
    is_worth_it = _work(output_shape, problem.weight_shape) >= MINIMUM_INTEGER_WORK
    if not (is_worth_it or problem.is_channels_last):
        return QuantizedConvAlgorithm.NUMPY
    return QuantizedConvAlgorithm.ONEDNN_SPLIT if problem.is_split else QuantizedConvAlgorithm.ONEDNN


# Of direct convolutions


def is_direct(shape: Sequence[int], geometry: ConvGeometry, x_shape: Sequence[int]) -> bool:
    """Whether the tasks convolve an X with a weight, of these shapes that fit together."""
    if geometry.groups != 1 or len(shape) > _MOST_AXES:
        return False
    padding = geometry.padding(x_shape, shape)
    # The lines of a window are at equal distances: of dilations along a line, each tap is one, and so there is but one row.
    is_close = padding.dilations[-1] == 1 or shape[-1] == 1
    is_flat = math.prod(shape[2:-1]) == 1
    return (is_close or is_flat) and min(*padding.begins, *padding.ends) >= 0


def task_name(name: str, dtype: np.dtype[Any], panel: int = PANEL) -> str:
    """Of the task for an X of a type and panels of some columns."""
    return name + ("" if panel == PANEL else f"_{panel}") + ("_int8" if dtype == _INT8 else "")


def panel_for(outputs: int, *, is_plain: bool) -> int:
    """Columns of a panel for so many outputs: what takes least time, with columns that are not there.

    Args:
        outputs: at least one.
        is_plain: whether elements are multiplied as they are, and not summed up.
    """
    # A step computes all columns of a panel, there or not: few outputs waste less of narrow panels, which cost more a column.
    return min(_PANELS, key=lambda panel: -(-outputs // panel) * _PANELS[panel][not is_plain])


def is_large(work: int) -> bool:
    """Whether so many multiplications and additions are worth several threads, and a task for panels of the best width."""
    return work >= TEAM_WORK


def threads_for_work(work: int) -> int:
    """Threads for so many multiplications and additions."""
    return libraries.thread_count() if is_large(work) else 1


def tiling_for(
    geometry: ConvGeometry,
    x_shape: Sequence[int],
    weight_shape: Sequence[int],
    output_shape: Sequence[int],
    *,
    is_channels_last: bool,
    panel: int = PANEL,
    threads: int = 1,
) -> Tiling:
    """How the tasks compute a convolution that ``is_direct``, by panels of so many columns and on so many threads."""
    interleaved = is_interleaved(x_shape, is_channels_last=is_channels_last)
    padding = geometry.padding(x_shape, weight_shape)
    image = Image.of(x_shape, weight_shape, output_shape, padding, is_interleaved=interleaved)
    return with_amx(Tiling(image, image.source(is_interleaved=interleaved), panel, threads))


def algorithm_of(tiling: Tiling) -> QuantizedConvAlgorithm:
    """What multiplies."""
    return QuantizedConvAlgorithm.AMX if tiling.chunk else QuantizedConvAlgorithm.VNNI


def with_amx(tiling: Tiling) -> Tiling:
    """The same by AMX, where there is that and it is faster."""
    image, steps = tiling.image, tiling.window[2]
    work = 2 * math.prod((image.samples, *image.out_size, image.outputs, image.channels, *image.kernel))
    if not has_amx() or work < LEAST_AMX_WORK:
        return tiling
    # No tile may reach beyond a line: the steps of a chunk divide those of a line.
    chunk = max(count for count in range(1, TILE_STEPS + 1) if steps % count == 0)
    # Windows of a line are shared evenly among tiles: of the last one, no rows are left empty that others could have.
    rows = image.out_size[1] / -(-image.out_size[1] // TILE_ROWS)
    return tiling._replace(chunk=chunk) if rows * chunk >= LEAST_OF_TILE else tiling
