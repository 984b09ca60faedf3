"""Normalizations of rows, and of the heads of rows, as parts of a sequence."""

from __future__ import annotations

from dataclasses import replace

from ort_sdk.api import FusibleProgram, FusibleStep
from ort_sdk_cpu.fusion.transformer.row_step import (
    ROWS,
    RowStep,
    are_floats,
    constant_vector,
    optional_input,
    renamed,
    shape_of,
    value_address,
    width_of,
)
from ort_sdk_cpu.fusion.transformer.views import RowViews
from ort_sdk_cpu.jit.task_sequence import TaskWords
from ort_sdk_cpu.normalization.arguments.rows import MODULE, Normalization
from ort_sdk_cpu.platform.addresses import address_of

__all__ = ["normalization_of_heads", "normalization_step", "skip_normalization_step"]

NORMALIZATIONS = frozenset({"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"})


def normalization_step(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    """LayerNormalization or RMSNormalization along rows with a constant scale; None for others."""
    x, out = step.inputs[0], step.outputs[0]
    width = width_of(program, x)
    scale, shift = constant_vector(step, 1, width, program), constant_vector(step, 2, width, program)
    axis = step.attributes.get("axis", -1)
    if scale is None or (optional_input(step, 2) and shift is None) or any(step.outputs[1:]):
        return None
    if axis not in (-1, len(program.values[x].shape) - 1):
        return None
    epsilon = float(step.attributes.get("epsilon", 1e-5))
    vectors = (address_of(scale), 0 if shift is None else address_of(shift))
    name = "layer_normalization" if step.op_type == "LayerNormalization" else "rms_normalization"
    arguments = Normalization(value_address(x), 0, 0, 0, value_address(out), *vectors, ROWS, width, epsilon)
    task = TaskWords(MODULE, name, arguments.words)
    return RowStep(task, {x: width, out: width}, (x,), (out,), kept=(scale, shift))


def skip_normalization_step(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    """The same of the sum of two values and a constant bias, which may be a result, too; None for others."""
    x, skip, *vectors = step.inputs
    out, *others = step.outputs
    width = width_of(program, x)
    has_shift = step.op_type == "SkipLayerNormalization"
    arrays = [constant_vector(step, 2 + index, width, program) for index in range(len(vectors))]
    if any(index and array is None for index, array in zip(vectors, arrays, strict=True)) or any(others[:2]):
        return None
    scale, shift, bias = (*arrays, None, None)[:3] if has_shift else (*arrays[:1], None, *arrays[1:], None)[:3]
    if scale is None or shape_of(program, skip) != shape_of(program, x):
        return None
    written = (out, *(total for total in others[2:] if total))
    bias_at, scale_at, shift_at = (0 if array is None else address_of(array) for array in (bias, scale, shift))
    name = "layer_normalization" if has_shift else "rms_normalization"
    epsilon = float(step.attributes.get("epsilon", 1e-12))
    arguments = Normalization(
        value_address(x),
        value_address(skip),
        bias_at,
        value_address(written[-1]),
        value_address(out),
        scale_at,
        shift_at,
        ROWS,
        width,
        epsilon,
    )
    task = TaskWords(MODULE, name, arguments.words)
    return RowStep(task, dict.fromkeys((x, skip, *written), width), (x, skip), written, kept=(scale, shift, bias))


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
    made = normalization_step(step, program) if are_floats(step, program) else None
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
