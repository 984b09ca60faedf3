"""Softmax and normalizations: by compiled tasks, or by NumPy on blocks of rows that stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.bindable import bindable
from ort_sdk_cpu.kernel.eager import declare_eager_calls
from ort_sdk_cpu.kernel.layouts.contiguous import contiguous_first
from ort_sdk_cpu.kernel.selecting import SelectingMaker
from ort_sdk_cpu.kernel.task_writer import TaskWriter, are_floats, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer, copying_writer
from ort_sdk_cpu.memory.workspace import workspace_of
from ort_sdk_cpu.platform.threads import blas_matmul

from .arguments.rows import MODULE, Normalization, Softmax
from .select import SoftmaxAlgorithm, SoftmaxProblem
from .softmax_axis import softmax_axis_writer

__all__ = ["softmax_last"]

declare_eager_calls("normalization.eager", "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "Softmax")
declare_eager_calls("normalization.eager", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")

Normalize = Callable[[HostArray, HostArray, float], Any]
"""``normalize(x, out, epsilon)`` for matrices, along their rows."""

BLOCK = 1 << 16
"""Elements of the rows that NumPy normalizes at a time: input and output of a step fit in the second cache."""


def _row_blocks(rows: int, width: int) -> list[slice]:
    step = max(1, BLOCK // max(width, 1))
    return [slice(start, min(start + step, rows)) for start in range(0, rows, step)]


@bindable("Softmax")
def softmax(info: KernelInfo, compute: Any) -> MakeWriter:
    """exp(x) over its sum: along the last axes by rows, along others by columns."""
    axis = info.attribute("axis", -1 if info.since_version >= 13 else 1)
    is_flattened, workspace = info.since_version < 13, workspace_of(info)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> tuple[SoftmaxAlgorithm, Writer]:
        shape = outputs[0].shape
        first = axis + len(shape) if axis < 0 else axis
        if 0 in shape:
            return SoftmaxAlgorithm.NUMPY, copying_writer(compute)
        x, out = inputs[0], outputs[0]
        problem = SoftmaxProblem(shape, first, is_flattened, x.strides, out.strides, are_floats([x, out]))
        if not problem.is_of_rows:
            return softmax_axis_writer(problem, out, lambda x, out: softmax_along(x, out, first))
        algorithm, writer = _softmax_rows(math.prod(shape[:first]), math.prod(shape[first:]), out)
        return algorithm, contiguous_first(writer, x, workspace)

    return SelectingMaker(make)


@bindable("BiasSoftmax", domain="com.microsoft")
def bias_softmax(info: KernelInfo, compute: Any) -> MakeWriter:
    """Softmax of data plus bias over the axes from ``axis`` on."""
    axis, is_inner = int(info.attribute("axis", 1)), bool(info.attribute("is_inner_broadcast"))
    workspace = workspace_of(info)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        shape, bias = outputs[0].shape, inputs[1]
        if 0 in shape:
            return lambda data, bias, out: np.copyto(out, compute(data, bias))
        first = axis % len(shape)
        rows, width = math.prod(shape[:first]), math.prod(shape[first:])
        groups = max(bias.size // max(width, 1), 1)
        layout = (groups, rows // groups, width) if is_inner else (rows // groups, groups, width)
        bias_layout = (groups, 1, width) if is_inner else (1, groups, width)
        _, write_rows = _softmax_rows(rows, width, outputs[0])

        def write(data: HostArray, bias: HostArray, out: HostArray) -> None:
            total = workspace.array("biased", layout, out.dtype)
            np.add(data.reshape(layout), bias.reshape(bias_layout), out=total)
            write_rows(total, out)

        return write

    return make


def softmax_along(x: HostArray, out: HostArray, axis: int) -> None:
    """exp(x) over its sum along an axis that has elements; ``x`` may be ``out``."""
    np.subtract(x, np.max(x, axis=axis, keepdims=True), out)
    np.exp(out, out)
    np.divide(out, np.sum(out, axis=axis, keepdims=True), out)


_SUM_LIMIT = 1e-8
"""A row's sum of exponentials above which nothing of its softmax is lost to underflow (its largest is 18 below that of all)."""


def softmax_last(x: HostArray, out: HostArray) -> None:
    """Softmax along the last axis of arrays with elements; ``x`` must not be ``out``.

    NumPy takes longer to find the largest of each row than for all else, so all are shifted by the largest of all. Only if that
    leaves a row too small, or NaN, is it done again by rows.
    """
    np.subtract(x, np.max(x), out)
    np.exp(out, out)
    sums = _row_sums(out)
    if not np.min(sums) > _SUM_LIMIT:
        softmax_along(x, out, x.ndim - 1)
        return
    np.divide(1.0, sums, sums)
    np.multiply(out, sums, out)


def _row_sums(x: HostArray) -> HostArray:
    """Sums along the last axis, which keeps size 1: a GEMV with ones is several times faster than NumPy's sum of short rows."""
    sums: HostArray = blas_matmul(x, np.ones((x.shape[-1], 1), x.dtype))
    return sums


def _softmax_rows(rows: int, width: int, example: HostArray) -> tuple[SoftmaxAlgorithm, Writer]:
    """The algorithm, and ``write(x, out)`` for contiguous outputs like the example."""
    blocks = _row_blocks(rows, width)

    def write(x: HostArray, out: HostArray) -> None:
        source, target = x.reshape(rows, width), out.reshape(rows, width)
        for block in blocks:
            softmax_last(source[block], target[block])

    if not is_worth_a_task(rows * width, MODULE, "softmax") or not are_floats([example]):
        return SoftmaxAlgorithm.NUMPY, write
    task = TaskWriter(MODULE, "softmax", Softmax(Operand(0), Operand(1), rows, width), write, threads_for(rows * width))
    return SoftmaxAlgorithm.ROWS, task


def _standardize(x: HostArray, out: HostArray, epsilon: float) -> None:
    """Zero mean and unit variance along the rows."""
    mean = _row_sums(x)
    mean /= x.shape[1]
    np.subtract(x, mean, out)
    _divide_by_root_mean_square(out, out, epsilon)


def _divide_by_root_mean_square(x: HostArray, out: HostArray, epsilon: float) -> None:
    factor = np.vecdot(x, x)[:, None]
    factor /= x.shape[1]
    factor += epsilon
    np.sqrt(factor, factor)
    np.divide(1.0, factor, factor)
    np.multiply(x, factor, out)


@bindable("LayerNormalization")
def layer_normalization(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Standardized rows, scaled and shifted."""
    return _plain(info, _standardize, "layer_normalization", compute)


@bindable("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Rows divided by their root mean square, and scaled."""
    return _plain(info, _divide_by_root_mean_square, "rms_normalization", compute)


@bindable("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """LayerNormalization of input + skip + bias."""
    return _skipped(info, _standardize, "layer_normalization", has_shift=True)


@bindable("SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_simplified_layer_normalization(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """RMSNormalization of input + skip + bias."""
    return _skipped(info, _divide_by_root_mean_square, "rms_normalization", has_shift=False)


def _outputs_bound(info: KernelInfo, allowed: set[int]) -> bool:
    """Whether all is of one floating-point type, as steps in position need it, and no statistics are asked for."""
    types = {argument.element_type for argument in (*info.inputs, *info.outputs) if argument is not None}
    return len(types) == 1 and all(index in allowed for index in range(len(info.outputs)) if info.wants_output(index))


def _plain(info: KernelInfo, normalize: Normalize, task: str, compute: Any) -> MakeWriter | None:
    if not _outputs_bound(info, {0}):
        return None
    axis, epsilon = int(info.attribute("axis", -1)), float(info.attribute("epsilon", 1e-5))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        apply = _rows_writer(normalize, outputs[0].shape, axis, epsilon)
        given = len(inputs)

        def write(*arrays: Any) -> None:
            apply(arrays[0], arrays[1], arrays[2] if given > 2 else None, arrays[given])

        positions = (0, None, None, None, given, 1, 2 if given > 2 else None)
        first = axis % outputs[0].ndim
        if not all(_is_of_row(parameter, outputs[0].shape[first:]) for parameter in inputs[1:]):
            return copying_writer(compute)
        return _task_or(write, task, (*inputs, *outputs), positions, first, epsilon)

    return make


def _is_of_row(parameter: HostArray | None, axes: tuple[int, ...]) -> bool:
    """Whether a parameter broadcasts to the normalized axes, and not over rows."""
    if parameter is None:
        return True
    own = parameter.shape[: max(parameter.ndim - len(axes), 0)]
    last = parameter.shape[len(own) :]
    return set(own) <= {1} and all(size in {1, whole} for size, whole in zip(last, axes[len(axes) - len(last) :], strict=True))


def _skipped(info: KernelInfo, normalize: Normalize, task: str, *, has_shift: bool) -> MakeWriter | None:
    if not _outputs_bound(info, {0, 3}):
        return None
    epsilon = float(info.attribute("epsilon", 1e-12))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        apply = _rows_writer(normalize, outputs[0].shape, -1, epsilon)
        given, bias_at = len(inputs), 4 if has_shift else 3

        def write(*arrays: Any) -> None:
            out = arrays[given]
            total = arrays[given + 3] if len(outputs) > 3 else None
            total = out if total is None else total
            np.add(arrays[0], arrays[1], total)
            if given > bias_at and arrays[bias_at] is not None:
                np.add(total, arrays[bias_at], total)
            apply(total, arrays[2], arrays[3] if has_shift and given > 3 else None, out)

        arrays = (*inputs, *outputs)
        bias, shift = bias_at if given > bias_at else None, 3 if has_shift and given > 3 else None
        total = given + 3 if len(outputs) > 3 and outputs[3] is not None else given
        if inputs[1].shape != outputs[0].shape:
            return write
        return _task_or(write, task, arrays, (0, 1, bias, total, given, 2, shift), outputs[0].ndim - 1, epsilon)

    return make


def _task_or(
    write: Writer, task: str, arrays: Sequence[Any], positions: Sequence[int | None], first: int, epsilon: float
) -> Writer:
    """The writer as a task of ``compiled.rows``, if that is worth it and all parameters are vectors of the normalized axes.

    Args:
        write: computes the same by NumPy.
        task: its name.
        arrays: those the writer is called with.
        positions: of x, skip, bias, total, out, scale and shift among them.
        first: first normalized axis.
        epsilon: of the node.
    """
    found: list[Any] = [None if position is None else arrays[position] for position in positions]
    x, _, bias, _, out, scale, shift = found
    rows, width = math.prod(out.shape[:first]), math.prod(out.shape[first:])
    parameters = [vector for vector in (bias, scale, shift) if vector is not None]
    is_plain = x.shape == out.shape and all(vector.size == width for vector in parameters)
    if not is_plain or not is_worth_a_task(out.size, MODULE, task) or not are_floats((x, out, *parameters)):
        return write
    operands = [None if position is None else Operand(position) for position in positions]
    arguments = Normalization.of_words((*operands, rows, width, epsilon))
    return TaskWriter(MODULE, task, arguments, write, threads_for(out.size))


def _rows_writer(normalize: Normalize, shape: tuple[int, ...], axis: int, epsilon: float) -> Callable[..., None]:
    """``write(x, scale, shift or None, out)`` for data of a shape; ``x`` may be ``out``."""
    first = axis % len(shape)
    rows, width = math.prod(shape[:first]), math.prod(shape[first:])
    blocks = _row_blocks(rows, width)
    in_axes = shape[first:]

    def as_row(parameter: HostArray) -> HostArray:
        if parameter.shape == (width,):
            return parameter
        return np.broadcast_to(parameter.reshape(parameter.shape[-len(in_axes) :]), in_axes).reshape(width)

    def write(x: HostArray, scale: HostArray, shift: HostArray | None, out: HostArray) -> None:
        source, target, scale_row = x.reshape(rows, width), out.reshape(rows, width), as_row(scale)
        shift_row = None if shift is None else as_row(shift)
        for block in blocks:
            normalized = target[block]
            normalize(source[block], normalized, epsilon)
            np.multiply(normalized, scale_row, normalized)
            if shift_row is not None:
                np.add(normalized, shift_row, normalized)

    return write


@bindable("BatchNormalization")
def batch_normalization(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """Normalization per channel by given statistics, with factor and shift computed once if they are constants."""
    if info.since_version < 9 or info.attribute("training_mode", 0) or not _outputs_bound(info, {0}) or info.input_rank(0) == 1:
        return None
    epsilon = float(info.attribute("epsilon", 1e-5))
    is_constant = all(index in info.constants for index in range(1, 5))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        shape = (-1, *(1 for _ in outputs[0].shape[2:]))

        def affine(scale: HostArray, bias: HostArray, mean: HostArray, variance: HostArray) -> tuple[HostArray, HostArray]:
            factor = scale / np.sqrt(variance + epsilon)
            return factor.reshape(shape), (bias - mean * factor).reshape(shape)

        kept = affine(*inputs[1:5]) if is_constant else None

        def write(x: HostArray, *arrays: HostArray) -> None:
            factor, shift = affine(*arrays[:4]) if kept is None else kept
            np.multiply(x, factor, arrays[4])
            np.add(arrays[4], shift, arrays[4])

        return write

    return make
