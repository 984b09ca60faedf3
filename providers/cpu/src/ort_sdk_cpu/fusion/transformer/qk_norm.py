"""Normalization of each head of queries and keys before attention (QK-Norm, Henry et al. 2020), as a part of a sequence."""

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
        views: of its rows, to which the result is added.

    Returns:
        Position and task; None for another step.
    """
    step = program.steps[position]
    if step.op_type not in NORMALIZATIONS or step.domain:
        return None
    heads_first = views.heads(step.inputs[0])
    heads = views.heads_of_tokens(step.inputs[0]) if heads_first is None else heads_first
    if heads is None or heads.start or heads.width != heads.heads * heads.size:
        return None
    made = row_step(step, program)
    if made is None:
        return None
    (out,) = made.writes
    words = tuple((("rows", heads.heads),) if word == ROWS else word for word in made.task.words)
    views.add_heads(out, step.inputs[0], heads.heads, heads.size, are_heads_first=heads_first is not None)
    # Threads share rows of heads here, which are not the rows of tokens that they share elsewhere.
    whole = replace(
        made,
        task=renamed(TaskWords(made.task.module, made.task.name, words), {step.inputs[0]: heads.rows.value}),
        widths=dict.fromkeys((heads.rows.value, out), heads.width),
        reads=(heads.rows.value,),
        is_row_parallel=False,
        repeated=heads.rows.steps,
        required=heads.rows.required,
        rearranged=frozenset({out}),
    )
    return (position,), whole
