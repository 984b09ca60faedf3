"""GEMMs of rows and constant matrices as parts of a sequence, with biases, residuals and activations in their epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import FusibleProgram, FusibleStep, HostArray, TensorElementType
from ort_sdk_cpu.fusion.transformer.row_step import (
    FLOAT_BYTES,
    ROWS,
    WORK,
    WORK_BYTES,
    RowStep,
    are_floats,
    only_reader,
    optional_input,
    shape_of,
    value_address,
)
from ort_sdk_cpu.gemm.arguments.sgemm import Gemm
from ort_sdk_cpu.gemm.constant_b import ConstantBGemm, RowGemm
from ort_sdk_cpu.gemm.plan import task_of
from ort_sdk_cpu.gemm.select import BLayout
from ort_sdk_cpu.gemm.small import SmallGemm
from ort_sdk_cpu.jit.task_sequence import TaskWords, Word
from ort_sdk_cpu.kernel.activation import ActivationKind
from ort_sdk_cpu.platform.addresses import address_of

__all__ = ["gemm_step", "gemm_with_epilogue"]

SOME_ROWS = 64
"""Any number that is not few: the sequence puts in the task for the rows of a run."""


def gemm_step(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    """MatMul, Gemm and the like with a constant matrix; C may be rows of another value. None for others."""
    product, x, out = _row_gemm(step, program), step.inputs[0], step.outputs[0]
    if product is None:
        return None
    if not product.beta:
        return _gemm_task(product, x, out, product.bias, product.epilogue_words)
    activation, alpha, _, slope = product.epilogue_words
    if shape_of(program, step.inputs[2]) != shape_of(program, out) or program.values[step.inputs[2]].constant is not None:
        return None
    return _gemm_task(product, x, out, None, (activation, alpha, product.beta, slope), step.inputs[2])


def _row_gemm(step: FusibleStep, program: FusibleProgram) -> RowGemm | None:
    """A step as a GEMM of rows and a constant matrix; None for others."""
    if isinstance(step.kernel, ConstantBGemm):
        return step.kernel.row_gemm
    call = getattr(step.kernel, "call", None)
    if not isinstance(call, SmallGemm) or len(program.values[step.inputs[0]].shape) < 2:
        return None
    constants: list[Any] = [program.values[index].constant if index in program.values else None for index in step.inputs[1:3]]
    if constants[0] is None or constants[0].ndim != 2:
        return None
    if optional_input(step, 2) and constants[1] is None:
        return call.row_gemm(constants[0], None, beta=1.0)
    return call.row_gemm(constants[0], constants[1] if optional_input(step, 2) else None)


def _split(sizes: BLayout, position: int) -> Any:
    """One of ``m_parts``, ``n_parts`` and ``mc``."""
    return (((sizes, position), 1),)


def _gemm_task(
    product: RowGemm, x: int, out: int, vector: HostArray | None, epilogue: tuple[int | float, ...], rows: int = 0
) -> RowStep:
    """The task of a GEMM.

    Args:
        product: the GEMM.
        x: value of its rows.
        out: value of its result.
        vector: added to all rows; None for none.
        epilogue: activation, alpha, beta and slope.
        rows: value of rows that are added, in place of a vector; 0 for none.
    """
    sizes, some = product.sizes, product.sizes.problem(SOME_ROWS)
    bias: Word = value_address(rows) if rows else 0 if vector is None else address_of(vector)
    a_row, c_row = sizes.k * FLOAT_BYTES, sizes.n * FLOAT_BYTES
    activation, alpha, beta, slope = epilogue
    task, arguments = (
        task_of(some),
        Gemm(
            a=value_address(x),
            b=address_of(product.weight),
            c=value_address(out),
            d=bias,
            workspace=WORK,
            m=ROWS,
            n=sizes.n,
            k=sizes.k,
            lda=a_row,
            ldb=some.ldb,
            ldc=c_row,
            a_stride=0,
            b_stride=0,
            c_stride=0,
            ldd=c_row if rows else 0,
            batch=1,
            activation=int(activation),
            alpha=alpha,
            beta=beta,
            slope=slope,
            m_parts=_split(sizes, 0),
            n_parts=_split(sizes, 1),
            workspace_stride=WORK_BYTES,
            mc=_split(sizes, 2),
        ),
    )
    return RowStep(
        TaskWords(task.module, task.name, arguments.words),
        {x: sizes.k, out: sizes.n} | ({rows: sizes.n} if rows else {}),
        (x, rows) if rows else (x,),
        (out,),
        product=sizes,
        kept=(product.weight, vector),
    )


def gemm_with_epilogue(position: int, program: FusibleProgram) -> tuple[tuple[int, ...], RowStep] | None:
    """A GEMM and what follows it as one task: a constant vector added to its rows, a constant factor, Relu.

    Returns:
        Positions and task; None if the step at ``position`` is no GEMM that is followed so.
    """
    step = program.steps[position]
    product = _row_gemm(step, program)
    if product is None or product.epilogue_words[0] or product.beta or not are_floats(step, program):
        return None
    positions: tuple[int, ...] = (position,)
    out, vector, words = step.outputs[0], product.bias, product.epilogue_words
    added = None if vector is not None else _sole_reader(out, "Add", program)
    other = None if added is None else _other_vector(added, out, product.sizes.n, program)
    if added is not None and other is not None:
        positions, out, vector = (*positions, added), program.steps[added].outputs[0], other
        scaled = _sole_reader(out, "Mul", program)
        number = None if scaled is None else _other_number(scaled, out, program)
        if scaled is not None and number is not None:
            positions, out, vector = (*positions, scaled), program.steps[scaled].outputs[0], vector * np.float32(number)
            words = (words[0], float(words[1]) * number, *words[2:])
    bounded = _sole_reader(out, "Relu", program, inputs=1)
    if bounded is not None:
        positions, out, words = (
            (*positions, bounded),
            program.steps[bounded].outputs[0],
            (int(ActivationKind.LEAKY_RELU), *words[1:3], 0.0),
        )
    return None if len(positions) == 1 else (positions, _gemm_task(product, step.inputs[0], out, vector, words))


def _sole_reader(index: int, op_type: str, program: FusibleProgram, inputs: int = 2) -> int | None:
    """The only step that reads a value, if it is of an operator of so many inputs and keeps the shape."""
    position = only_reader(index, op_type, program)
    if position is None or len(program.steps[position].inputs) != inputs:
        return None
    return position if shape_of(program, program.steps[position].outputs[0]) == shape_of(program, index) is not None else None


def _other_input(position: int, index: int, program: FusibleProgram) -> Any:
    """The constant that a step of two inputs takes beside a value; None for none."""
    others = [own for own in program.steps[position].inputs if own != index]
    shown = program.values.get(others[0]) if len(others) == 1 else None
    return None if shown is None or shown.element_type is not TensorElementType.FLOAT else shown.constant


def _other_vector(position: int, index: int, width: int, program: FusibleProgram) -> HostArray | None:
    array = _other_input(position, index, program)
    return None if array is None or array.shape != (width,) else np.ascontiguousarray(array)


def _other_number(position: int, index: int, program: FusibleProgram) -> float | None:
    array = _other_input(position, index, program)
    return None if array is None or array.size != 1 or array.ndim > 1 else float(array.reshape(())[()])
