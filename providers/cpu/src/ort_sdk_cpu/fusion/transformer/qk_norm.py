"""Normalization of each head of rows, as of queries and keys before they are multiplied, as a part of a sequence."""

from __future__ import annotations

from dataclasses import replace

from ort_sdk.api import FusibleProgram
from ort_sdk_cpu.jit.task_sequence import TaskWords

from .steps import ROWS, RowStep, renamed, row_step
from .views import RowViews

__all__ = ["normalization_of_heads"]

NORMALIZATIONS = frozenset({"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"})


def normalization_of_heads(position: int, program: FusibleProgram, views: RowViews) -> tuple[tuple[int, ...], RowStep] | None:
    """A normalization of (batch, tokens, heads, size), or heads before tokens, along the last axis as one task.

    Args:
        position: of the step.
        program: the program.
        views: of its rows; are told that the result is rows.

    Returns:
        Position and task; None for another step.
    """
    step = program.steps[position]
    if step.op_type not in NORMALIZATIONS or step.domain:
        return None
    apart = views.heads(step.inputs[0])
    heads = views.parted(step.inputs[0]) if apart is None else apart
    if heads is None or heads.start or heads.width != heads.heads * heads.size:
        return None
    made = row_step(step, program)
    if made is None:
        return None
    (out,) = made.writes
    words = tuple((("rows", heads.heads),) if word == ROWS else word for word in made.task.words)
    views.lay_out(out, step.inputs[0], heads.heads, heads.size, are_apart=apart is not None)
    # A thread's part of all heads is not that of all rows.
    whole = replace(
        made,
        task=renamed(TaskWords(made.task.module, made.task.name, words), {step.inputs[0]: heads.rows.value}),
        widths=dict.fromkeys((heads.rows.value, out), heads.width),
        reads=(heads.rows.value,),
        goes_by_rows=False,
        repeated=heads.rows.steps,
        required=heads.rows.required,
        rearranged=frozenset({out}),
    )
    return (position,), whole
