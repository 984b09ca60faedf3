"""MatMulNBits of few rows as parts of a sequence: GEMVs, and the tasks that quantize or rearrange their activations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ort_sdk.api import FusibleProgram, FusibleStep, TensorElementType
from ort_sdk_cpu.fusion.transformer.row_step import FLOAT_BYTES, ROWS, WORK, RowStep, renamed
from ort_sdk_cpu.gemm.nbits.arguments.activations import Activations
from ort_sdk_cpu.gemm.nbits.arguments.matmul_nbits import WORKSPACE_START, MatMulNBits
from ort_sdk_cpu.gemm.nbits.launch import ACTIVATIONS, NBitsGemv
from ort_sdk_cpu.gemm.nbits.operands import BIAS
from ort_sdk_cpu.jit.task_sequence import LinearTerms, TaskWords, Word

__all__ = ["nbits_step", "with_activation_tasks"]

ACTIVATION_VALUES = (-1, -2, -3)
"""Activations, their scales and their sums as such a task writes them: numbers that no value of a program has."""
TASK_WITH_WORKSPACE = "deinterleave_f32"
"""Task that has workspace where others write scales."""


def nbits_step(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    """A MatMulNBits whose constant weight is read in place, as a task for few rows; None for any other step."""
    kernel: Any = step.kernel
    if step.op_type != "MatMulNBits" or not hasattr(kernel, "gemv"):
        return None
    x, out = step.inputs[0], step.outputs[0]
    shown = [program.values.get(index) for index in (x, out)]
    if any(each is None or each.element_type is not TensorElementType.FLOAT or len(each.shape) < 2 for each in shown):
        return None
    product: NBitsGemv | None = kernel.gemv()
    bias = _bias(step, program)
    return None if product is None or bias is NotImplemented else _gemv_step(product, x, out, bias)


def _bias(step: FusibleStep, program: FusibleProgram) -> Any:
    """A vector that is added, None for none; ``NotImplemented`` for one that may change."""
    index = step.inputs[BIAS] if len(step.inputs) > BIAS else 0
    if not index:
        return None
    shown: Any = program.values.get(index)
    return NotImplemented if shown is None or shown.constant is None else np.ascontiguousarray(shown.constant)


def _gemv_step(product: NBitsGemv, x: int, out: int, bias: Any) -> RowStep:
    """The GEMV's task; the activations' buffers, ``out`` and M depend on the run."""
    k, n = product.arguments.k, product.arguments.n
    made = _activation_task(product, x)
    words: list[Word] = list(product.arguments.words)
    numbers = {MatMulNBits.m: ROWS, MatMulNBits.bias: bias, MatMulNBits.out: _value(out)}
    fields = (MatMulNBits.x, MatMulNBits.x_scales, MatMulNBits.x_sums)
    numbers |= {field: _value(own) for field, own in zip(fields, ACTIVATION_VALUES, strict=True) if own in made.writes}
    if product.reads_activations:
        numbers[MatMulNBits.activations] = _value(x)
    for field, word in numbers.items():
        words[field] = word
    return RowStep(
        TaskWords(product.plan.module, product.plan.task, tuple(words)),
        {x: k, out: n},
        (x,),
        (out,),
        kept=tuple(word for word in words if isinstance(word, np.ndarray)),
        activation_task=made,
        by_columns=True,
        numbers=k * n,
        most_rows=product.most,
    )


def _activation_task(product: NBitsGemv, x: int) -> RowStep:
    """The task that brings rows into the form that dot products read."""
    plan, arguments = product.plan, product.arguments
    has_workspace = plan.activations_task == TASK_WITH_WORKSPACE
    widths = {own: nbytes // FLOAT_BYTES for own, nbytes in zip(ACTIVATION_VALUES, plan.buffers, strict=True) if nbytes}
    if has_workspace:
        del widths[ACTIVATION_VALUES[1]]
    target, scales, sums = (_value(own) if own in widths else 0 for own in ACTIVATION_VALUES)
    given = Activations(
        x=_value(x),
        rows=ROWS,
        k=arguments.k,
        block_size=arguments.block_size,
        planes=plan.planes,
        target=target,
        scales=WORK if has_workspace else scales,
        sums=sums,
        x_stride=plan.x_stride,
        block_stride=arguments.block_stride,
    )
    return RowStep(
        TaskWords(ACTIVATIONS, plan.activations_task, given.words),
        {x: arguments.k, **widths},
        (x,),
        tuple(widths),
        work=WORKSPACE_START if has_workspace else 0,
    )


def _value(index: int) -> LinearTerms:
    """Address of a value."""
    return ((("value", index), 1),)


def with_activation_tasks(steps: Iterable[RowStep]) -> list[RowStep]:
    """Steps in order, each after the task that makes its activations: one for all that read the same in the same form."""
    found: list[RowStep] = []
    made: dict[TaskWords, Mapping[int, int]] = {}
    for step in steps:
        first = step.activation_task
        if first is None:
            found.append(step)
            continue
        names = made.get(first.task)
        if names is None:
            names = made[first.task] = {own: own - len(ACTIVATION_VALUES) * len(made) for own in ACTIVATION_VALUES}
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
