"""Steps of a program as tasks on rows, by operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import FusibleProgram, FusibleStep, HostArray
from ort_sdk_cpu.attention.arguments.flash import MODULE as FLASH
from ort_sdk_cpu.attention.arguments.flash import FlashAttention, thread_workspace_bytes
from ort_sdk_cpu.attention.arguments.operands import NO_BIAS
from ort_sdk_cpu.elementwise.arguments.functions import MODULE as FUNCTIONS
from ort_sdk_cpu.elementwise.arguments.functions import BiasActivation, BinaryRows, QuickGeluRows
from ort_sdk_cpu.fusion.transformer.decode import group_query_attention, multi_head_over_cache, rotary_embedding
from ort_sdk_cpu.fusion.transformer.row_step import (
    BATCH,
    FLOAT_BYTES,
    LENGTH,
    ROWS,
    WORK,
    WORK_BYTES,
    RowStep,
    ScoreBiasOperand,
    are_floats,
    constant_vector,
    optional_input,
    shape_of,
    value_address,
    width_of,
)
from ort_sdk_cpu.jit.task_sequence import TaskWords
from ort_sdk_cpu.platform.addresses import address_of

from .gemm import gemm_step
from .normalization import normalization_step, skip_normalization_step

__all__ = ["row_step"]

MICROSOFT = "com.microsoft"


def row_step(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    """The step as a task; None if it is none, or may meet rows that are not like those of its other values."""
    make = _MAKERS.get((step.domain, step.op_type))
    if make is None or not are_floats(step, program):
        return None
    return make(step, program)


def _activation(name: str) -> Callable[[FusibleStep, FusibleProgram], RowStep | None]:
    """An activation, after a constant vector is added to each row."""

    def make(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
        x, out = step.inputs[0], step.outputs[0]
        width = width_of(program, x)
        bias = constant_vector(step, 1, width, program) if optional_input(step, 1) else np.zeros(width, np.float32)
        chosen = "fast_gelu" if step.attributes.get("approximate") == "tanh" else name
        if bias is None:
            return None
        arguments = BiasActivation(value_address(x), address_of(bias), value_address(out), ROWS, width)
        task = TaskWords(FUNCTIONS, f"bias_{chosen}", arguments.words)
        return RowStep(task, {x: width, out: width}, (x,), (out,), kept=(bias,))

    return make


def _attention(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    """Attention of queries, keys and values of the same tokens, without a cache: flash attention."""
    query, key, values = (optional_input(step, position) for position in range(3))
    shape = shape_of(program, query)
    if shape is None or len(shape) != 3 or not key or not values or shape_of(program, key) != shape:
        return None
    shapes, heads = shape_of(program, values), int(step.attributes["num_heads"])
    has_more = any(optional_input(step, position) for position in (4, *range(6, len(step.inputs)))) or any(step.outputs[1:])
    if has_more or shapes is None or shapes[:2] != shape[:2] or step.attributes.get("unidirectional", 0):
        return None
    width, value_width = shape[2], shapes[2]
    bias = constant_vector(step, 3, 2 * width + value_width, program)
    scores = ScoreBiasOperand(step.inputs[5], heads) if optional_input(step, 5) else None
    if (optional_input(step, 3) and bias is None) or (scores is not None and len(shape_of(program, scores.index) or ()) != 4):
        return None
    return _attention_task(step, (query, key, values), (heads, width, value_width), bias, scores)


def _attention_task(
    step: FusibleStep,
    read: tuple[int, int, int],
    sizes: tuple[int, int, int],
    bias: HostArray | None,
    scores: ScoreBiasOperand | None,
) -> RowStep:
    out, (heads, width, value_width) = step.outputs[0], sizes
    size, value_size = width // heads, value_width // heads
    widths = [*zip(read, (width, width, value_width), strict=True), (out, value_width)]
    operands = [_rows_of(index, own, heads) for index, own in widths]
    mask = NO_BIAS if scores is None else [scores.terms(position) for position in range(len(NO_BIAS))]
    start = 0 if bias is None else address_of(bias)
    biases = (start, start + 2 * width * FLOAT_BYTES if start else 0)
    scale = float(step.attributes.get("scale", 0.0)) or 1 / math.sqrt(size)
    sizes_words = (BATCH, heads, LENGTH, LENGTH, size, value_size, scale)
    arguments = FlashAttention.of(operands, sizes_words, (WORK, WORK_BYTES), mask, biases)
    task = TaskWords(FLASH, "flash_attention", arguments.words)
    work = thread_workspace_bytes(size, value_size)
    return RowStep(task, dict(widths), read, (out,), False, added=scores, kept=(bias,), work=work)


def _over_cache(find: Callable[[FusibleStep, FusibleProgram], Any]) -> Callable[[FusibleStep, FusibleProgram], RowStep | None]:
    """A step whose task has arguments that only a run knows."""

    def make(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
        found = find(step, program)
        if found is None:
            return None
        cache, task, widths, reads, kept = found
        return RowStep(task, widths, reads, step.outputs[:1], False, kept=kept, work=getattr(cache, "work", 0), cache=cache)

    return make


def _multi_head(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    return _attention(step, program) or _over_cache(multi_head_over_cache)(step, program)


def _quick_gelu(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
    x, out = step.inputs[0], step.outputs[0]
    width = width_of(program, x)
    arguments = QuickGeluRows(value_address(x), value_address(out), ROWS, width, float(step.attributes.get("alpha", 1.702)))
    return RowStep(TaskWords(FUNCTIONS, "quick_gelu_rows", arguments.words), {x: width, out: width}, (x,), (out,))


def _of_both(name: str) -> Callable[[FusibleStep, FusibleProgram], RowStep | None]:
    """An element-wise function of rows of two values."""

    def make(step: FusibleStep, program: FusibleProgram) -> RowStep | None:
        x, y = step.inputs
        out, width = step.outputs[0], width_of(program, x)
        are_rows = shape_of(program, x) == shape_of(program, y) == shape_of(program, out)
        if not are_rows or any(program.values[index].constant is not None for index in (x, y)):
            return None
        arguments = BinaryRows(value_address(x), value_address(y), value_address(out), ROWS, width)
        return RowStep(TaskWords(FUNCTIONS, name, arguments.words), {x: width, y: width, out: width}, (x, y), (out,))

    return make


def _rows_of(index: int, width: int, heads: int) -> tuple[Any, ...]:
    """Address, and the bytes from one to the next of batch, heads and rows."""
    row = width * FLOAT_BYTES
    return value_address(index), (("length", row),), row // heads, row


_MAKERS: dict[tuple[str, str], Callable[[FusibleStep, FusibleProgram], RowStep | None]] = {
    **dict.fromkeys((("", "MatMul"), ("", "Gemm")), gemm_step),
    **dict.fromkeys(((MICROSOFT, "FusedGemm"), (MICROSOFT, "FusedMatMul"), (MICROSOFT, "FusedMatMulActivation")), gemm_step),
    **dict.fromkeys(
        (("", "LayerNormalization"), ("", "RMSNormalization"), ("", "SimplifiedLayerNormalization")), normalization_step
    ),
    (MICROSOFT, "SkipLayerNormalization"): skip_normalization_step,
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): skip_normalization_step,
    **dict.fromkeys((("", "Gelu"), (MICROSOFT, "Gelu"), (MICROSOFT, "BiasGelu")), _activation("gelu")),
    (MICROSOFT, "FastGelu"): _activation("fast_gelu"),
    (MICROSOFT, "MultiHeadAttention"): _multi_head,
    (MICROSOFT, "GroupQueryAttention"): _over_cache(group_query_attention),
    (MICROSOFT, "RotaryEmbedding"): _over_cache(rotary_embedding),
    (MICROSOFT, "QuickGelu"): _quick_gelu,
    ("", "Add"): _of_both("add_rows"),
    ("", "Mul"): _of_both("multiply_rows"),
}
"""(domain, operator) → makes the task of a step."""
