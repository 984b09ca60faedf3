"""Attention that a model writes as several steps, as a part of a sequence: over a cache that it lengthens, or over given keys."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ort_sdk.api import FusibleProgram
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.attention.arguments.decode import MODULE, DecodeAttention, thread_workspace_bytes
from ort_sdk_cpu.attention.decode import NO_ROTATION, common_cache_positions, has_contiguous_rows, strides_along
from ort_sdk_cpu.attention.select import MOST_DECODE_QUERIES
from ort_sdk_cpu.fusion.shapes.expressions import OPEN, Expressions
from ort_sdk_cpu.jit.task_sequence import LinearTerms, TaskWords
from ort_sdk_cpu.platform.addresses import address_of

from .attention_pattern import AttentionGroup
from .decode import KeyValueCache, decode_task, score_bias_in
from .row_step import (
    BATCH,
    FLOAT_BYTES,
    LENGTH,
    WORK,
    WORK_BYTES,
    Given,
    RowOperand,
    RowStep,
    RunArguments,
    only_reader,
)
from .views import SWAP_TOKENS_AND_HEADS, Heads, RowViews, SameRows

__all__ = ["attention_step"]

VECTOR = 16
SINGLE = 3
"""Rank of a single head: (batch, tokens, size)."""
MASK = 5
"""Words of ``ScoreBias``."""
RUN_WORDS = tuple((kind, index) for kind, count in (("keys", 4), ("values", 4), ("mask", MASK)) for index in range(count))
"""Names of the words of given keys, values and mask, which a run knows."""


def attention_step(
    group: AttentionGroup, program: FusibleProgram, views: RowViews, expressions: Expressions
) -> tuple[tuple[int, ...], RowStep] | None:
    """An attention of several steps, with those that put its heads side by side, as one task.

    Args:
        group: the steps.
        program: the program.
        views: of its rows.
        expressions: of its values.

    Returns:
        Positions and task; None if its operands are no parts of rows.
    """
    has_cache, is_single = group.uncached is not None, expressions.rank(group.query_value) == SINGLE
    result = _Result(group.output) if is_single else _side_by_side(group.output, program, views)
    find_heads = views.single if is_single else views.heads
    operands = [find_heads(value) for value in (group.query_value, *(group.new if has_cache else ()))]
    heads = [each for each in operands if each is not None]
    if result is None or len(heads) < len(operands) or (is_single and group.query.steps):
        return None
    out = result.value
    find = _over_cache_of_rows if has_cache else _over_given_keys
    found = find(group, heads, out, program)
    batches = [views.required((operand.batch, OPEN)) for operand in (group.key, group.value) if operand.batch != "1"]
    if found is None or None in batches:
        return None
    cache, task, widths, reads = found
    positions = tuple(sorted({*group.positions, *result.positions}))
    parts = [*result.parts, *(each.rows for each in heads)]
    own = [operand.steps | operand.expression.steps for operand in (group.key, group.value)]
    steps = frozenset().union(*own, *(part.steps for part in parts)).difference(positions)
    step = RowStep(
        task,
        widths,
        reads,
        (out,),
        is_row_parallel=False,
        work=thread_workspace_bytes(MOST_DECODE_QUERIES, cache.size, cache.size),
        cache=cache,
        repeated=steps,
        required=frozenset().union(*(part.required for part in parts), *filter(None, batches)),
        unfused=(group.uncached or group).fused(expressions),
        masks_nan=group.masks_nan,
    )
    return positions, step


@dataclass(frozen=True, slots=True)
class _Result:
    """The rows that an attention makes."""

    value: int
    positions: tuple[int, ...] = ()
    """Of the steps that put heads side by side."""
    parts: tuple[SameRows, ...] = ()


def _side_by_side(output: int, program: FusibleProgram, views: RowViews) -> _Result | None:
    """What Transpose and Reshape make of heads, perhaps behind a Reshape that keeps their shape; None for anything else."""
    same = only_reader(output, "Reshape", program)
    unchanged = None if same is None else views.unchanged(program.steps[same])
    output = output if same is None or unchanged is None else program.steps[same].outputs[0]
    transposed = only_reader(output, "Transpose", program)
    reshaped = None if transposed is None else only_reader(program.steps[transposed].outputs[0], "Reshape", program)
    if (
        transposed is None
        or reshaped is None
        or tuple(program.steps[transposed].attributes.get("perm", ())) != SWAP_TOKENS_AND_HEADS
    ):
        return None
    out = program.steps[reshaped].outputs[0]
    merged = views.merged(program.steps[reshaped], out)
    if merged is None:
        return None
    between = () if same is None or unchanged is None else (same,)
    return _Result(out, (*between, transposed, reshaped), (merged, *([unchanged] if unchanged else [])))


@dataclass(frozen=True, slots=True)
class GivenKeysAndValues:
    """Keys and values that are attended as they are."""

    own: int
    """Value that is the result."""
    heads: int
    size: int
    keys: int
    values: int
    condition: int
    filter_value: float
    added: int
    is_single: bool
    """Whether keys are (batch, rows, size), those of a single head."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        return tuple(filter(None, (self.keys, self.values, self.condition, self.added)))

    @property
    def outputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        return ()

    def bind(self, given: Given, batch_shape: tuple[int, ...], shared: dict[Hashable, Any]) -> RunArguments | None:
        """See ``RunBinder``."""
        keys, values = given[self.keys], given[self.values]
        if self.is_single and keys.ndim == values.ndim == SINGLE:
            keys, values = keys[:, None], values[:, None]
        shape = (batch_shape[0], self.heads, keys.shape[2] if keys.ndim == 4 else 0, self.size)
        if (
            keys.shape != shape
            or values.shape != shape
            or not shape[2]
            or batch_shape[1] > MOST_DECODE_QUERIES
            or not has_contiguous_rows(keys, values)
        ):
            return None
        name = ("given", self.condition, self.added, shape)
        if name not in shared:
            scores = (batch_shape[0], self.heads, batch_shape[1], shape[2])
            shared[name] = score_bias_in(given, self.condition, self.filter_value, self.added, scores)
        mask = shared[name]
        if mask is NotImplemented:
            return None
        cache_positions = common_cache_positions(batch_shape[0], 0, 0, shape[2])
        run_words = (address_of(keys), *keys.strides[:3], address_of(values), *values.strides[:3])
        masked = (0,) * 5 if mask is None else (address_of(mask), *strides_along(mask))
        numbers: list[tuple[Hashable, int]] = [
            ((kind, self.own), number) for kind, number in zip(RUN_WORDS, (*run_words, *masked), strict=True)
        ]
        numbers += [(("counts", self.own), address_of(cache_positions)), (("given_keys", self.own), shape[2])]
        return RunArguments(tuple(numbers), (), (cache_positions, mask))


def _over_cache_of_rows(group: AttentionGroup, operands: Sequence[Heads], out: int, program: FusibleProgram) -> Any:
    """Its cache, task, widths of rows and what is read, where it lengthens a cache; None if heads do not fit together.

    Args:
        group: the steps.
        operands: queries, new keys and new values.
        out: value that the rows of the result are.
        program: the program.
    """
    query, key, value = operands
    heads, size = query.heads, query.size
    # Multi-query attention (Shazeer 2019): a single head of keys broadcasts to all heads without being repeated.
    is_common = key.heads == value.heads == 1 == group.key.shared and group.key.target is None is group.value.target
    shared = heads if is_common else group.key.shared
    if {(each.heads * shared, each.size) for each in (key, value)} != {(heads, size)} or size % VECTOR:
        return None
    pasts = (group.key.past, group.value.past, group.key.present, group.value.present)
    condition, number, added = group.condition, group.filter_value, group.added
    is_single = len(program.values[group.key.present].shape) == SINGLE
    cache = KeyValueCache(
        *(key.heads, shared, size, False, *pasts),
        condition=condition,
        filter_value=number,
        added=added,
        is_single=is_single,
    )
    rows = [each.operand for each in operands]
    own = (*rows, RowOperand(out, heads * size * FLOAT_BYTES))
    task = decode_task({"scale": group.scale}, cache, own, None, (None, None))
    widths = {each.index: each.row // FLOAT_BYTES for each in own}
    return cache, task, widths, tuple(dict.fromkeys(each.index for each in rows))


def _over_given_keys(group: AttentionGroup, operands: Sequence[Heads], out: int, program: FusibleProgram) -> Any:
    """As ``_over_cache_of_rows``, over keys and values that others made, as an encoder does (cross attention)."""
    (query,), (keys, values) = operands, group.new
    heads, size = query.heads, query.size
    shapes = [program.values[index].shape if index in program.values else () for index in (keys, values)]
    rank = len(program.values[group.query_value].shape)
    shapes_by_head = [shape if rank > SINGLE or len(shape) != SINGLE else (shape[0], 1, *shape[1:]) for shape in shapes]
    if any(len(shape) != 4 or (shape[1], shape[3]) != (heads, size) for shape in shapes_by_head) or size % VECTOR:
        return None
    masked = (group.condition, group.filter_value, group.added)
    given = GivenKeysAndValues(out, heads, size, keys, values, *masked, rank == SINGLE)
    row = heads * size * FLOAT_BYTES
    words = _terms(*((kind, out) for kind in RUN_WORDS))
    keys_words, values_words, mask = words[:4], words[4:8], words[8:]
    positions, given_keys = _terms(("counts", out), ("given_keys", out))
    arguments = DecodeAttention.of(
        (*NO_ROTATION, positions, BATCH, LENGTH),
        query.operand.words(size),
        (keys_words, values_words),
        RowOperand(out, row).words(size),
        (heads, 1, size, size),
        (0, given_keys, 0, 0, 0, given_keys),
        workspace=(WORK, WORK_BYTES),
        factors=(group.scale, 0.0),
        mask=mask,
    )
    task = TaskWords(MODULE, "decode_attention", arguments.words)
    return given, task, {query.rows.value: query.width, out: heads * size}, (query.rows.value,)


def _terms(*names: Hashable) -> tuple[LinearTerms, ...]:
    """Words that are one number each."""
    return tuple([((name, 1),) for name in names])
