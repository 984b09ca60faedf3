"""Products of few rows with weights of packed integers as parts of a sequence, and the tasks that arrange their rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ort_sdk.api import FusibleProgram, FusibleStep, TensorElementType
from ort_sdk_cpu.gemm.nbits.launch import ACTIVATIONS, FewRows
from ort_sdk_cpu.gemm.nbits.microkernels import arguments as places
from ort_sdk_cpu.gemm.nbits.operands import BIAS
from ort_sdk_cpu.gemm.nbits.plan import SPARE_BYTES
from ort_sdk_cpu.jit.task_sequence import TaskWords, Terms, Word

from .decode import WORK
from .steps import FLOAT_BYTES, ROWS, RowStep, renamed

__all__ = ["behind_arranged", "nbits_step"]

ARRANGED = (-1, -2, -3)
"""Rows, their scales and their sums as a task arranges them: numbers that no value of a program has."""
SPARE_FORM = "arrange_rows_f32"
"""Task that has working memory where others write scales."""


def nbits_step(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    """A MatMulNBits whose weight stays and is read where it lies, as a task for few rows; None for any other step."""
    kernel: Any = step.kernel
    if step.op_type != "MatMulNBits" or not hasattr(kernel, "few_rows"):
        return None
    x, out = step.inputs[0], step.outputs[0]
    shown = [program.values.get(index) for index in (x, out)]
    if any(each is None or each.element_type is not TensorElementType.FLOAT or len(each.shape) < 2 for each in shown):
        return None
    product: FewRows | None = kernel.few_rows()
    bias = _bias(step, program)
    return None if product is None or bias is NotImplemented else _product(product, x, out, bias)


def _bias(step: FusibleStep, program: FusibleProgram) -> Any:
    """A vector that is added, None for none; ``NotImplemented`` for one that may change."""
    index = step.inputs[BIAS] if len(step.inputs) > BIAS else 0
    if not index:
        return None
    shown: Any = program.values.get(index)
    return NotImplemented if shown is None or shown.constant is None else np.ascontiguousarray(shown.constant)


def _product(product: FewRows, x: int, out: int, bias: Any) -> RowStep:
    inner, width = product.arguments[places.K], product.arguments[places.N]
    numbers: dict[int, Word] = {**product.arguments, places.M: ROWS, places.BIAS: bias, places.OUT: _value(out)}
    arranged = _arranged(product, x)
    positions = (places.X, places.X_SCALES, places.X_SUMS)
    numbers |= {position: _value(own) for position, own in zip(positions, ARRANGED, strict=True) if own in arranged.writes}
    if product.reads_activations:
        numbers[places.ACTIVATIONS] = _value(x)
    words = tuple(numbers.get(place, 0) for place in range(places.ARGUMENTS))
    return RowStep(
        TaskWords(product.form.module, product.form.task, words),
        {x: inner, out: width},
        (x,),
        (out,),
        kept=tuple(word for word in words if isinstance(word, np.ndarray)),
        arranged=arranged,
        by_columns=True,
        numbers=inner * width,
        most_rows=product.most,
    )


def _arranged(product: FewRows, x: int) -> RowStep:
    """The task that arranges rows."""
    form, arguments = product.form, product.arguments
    has_spare = form.arrange == SPARE_FORM
    widths = {own: nbytes // FLOAT_BYTES for own, nbytes in zip(ARRANGED, form.buffers, strict=True) if nbytes}
    if has_spare:
        del widths[ARRANGED[1]]
    target, scales, sums = (_value(own) if own in widths else 0 for own in ARRANGED)
    sizes = (ROWS, arguments[places.K], arguments[places.BLOCK], form.planes)
    strides = (form.x_stride, arguments[places.BLOCK_STRIDE])
    words = (_value(x), *sizes, target, WORK if has_spare else scales, sums, *strides)
    return RowStep(
        TaskWords(ACTIVATIONS, form.arrange, words),
        {x: arguments[places.K], **widths},
        (x,),
        tuple(widths),
        work=SPARE_BYTES if has_spare else 0,
    )


def _value(index: int) -> Terms:
    """Address of a value."""
    return ((("value", index), 1),)


def behind_arranged(steps: Iterable[RowStep]) -> list[RowStep]:
    """Steps in order, each behind the task that arranges its rows: once for all that read the same in the same form."""
    found: list[RowStep] = []
    made: dict[TaskWords, Mapping[int, int]] = {}
    for step in steps:
        first = step.arranged
        if first is None:
            found.append(step)
            continue
        names = made.get(first.task)
        if names is None:
            names = made[first.task] = {own: own - len(ARRANGED) * len(made) for own in ARRANGED}
            found.append(_named(first, names))
        reads, widths = (*step.reads, *first.writes), {**first.widths, **step.widths}
        found.append(_named(replace(step, reads=reads, widths=widths), names))
    return found


def _named(step: RowStep, names: Mapping[int, int]) -> RowStep:
    """The step with values by their names."""
    return replace(
        step,
        task=renamed(step.task, names),
        widths={names.get(index, index): width for index, width in step.widths.items()},
        reads=tuple(names.get(index, index) for index in step.reads),
        writes=tuple(names.get(index, index) for index in step.writes),
    )
