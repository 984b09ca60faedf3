"""Attention of several steps as a part of a sequence: over a cache that it lengthens, or over keys and values that are given."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from ort_sdk.api import FusibleProgram
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.attention.arguments.decode import MODULE, DecodeAttention, thread_workspace_bytes
from ort_sdk_cpu.attention.decode import NO_ROTATION, common_counts, is_readable, strides_along
from ort_sdk_cpu.attention.select import MOST_DECODE_QUERIES
from ort_sdk_cpu.fusion.shapes.expressions import OPEN, Expressions
from ort_sdk_cpu.jit.task_sequence import TaskWords, Terms
from ort_sdk_cpu.platform.addresses import address_of

from .attention_pattern import AttentionGroup
from .decode import BATCH, LENGTH, WORK, WORK_BYTES, CacheStep, CacheWords, Given, Rows, attending, scores_added
from .steps import RowStep, only_reader
from .views import HEADS_APART, Heads, RowViews, SameRows

__all__ = ["grouped_attention"]

FLOAT_BYTES = 4
VECTOR = 16
SINGLE = 3
"""Dimensions of a single head of each sample: (batch, tokens, size)."""
MASK = 5
"""Words of numbers that are added to scores."""
PLACES = tuple((kind, place) for kind, count in (("keys", 4), ("values", 4), ("mask", MASK)) for place in range(count))
"""Names of addresses, and of the bytes from one to the next along axes."""


def grouped_attention(
    group: AttentionGroup, program: FusibleProgram, views: RowViews, told: Expressions
) -> tuple[tuple[int, ...], RowStep] | None:
    """Single operators that are attention over a cache that they lengthen, and what puts its heads side by side, as one task.

    Returns:
        Positions and task; None if their operands are no parts of rows.
    """
    has_cache, is_single = group.uncached is not None, told.rank(group.query_value) == SINGLE
    result = _Result(group.output) if is_single else _side_by_side(group.output, program, views)
    place = views.single if is_single else views.heads
    operands = [place(value) for value in (group.query_value, *(group.new if has_cache else ()))]
    heads = [each for each in operands if each is not None]
    if result is None or len(heads) < len(operands) or (is_single and group.query.steps):
        return None
    out = result.value
    find = _of_new if has_cache else _of_given
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
        goes_by_rows=False,
        work=thread_workspace_bytes(MOST_DECODE_QUERIES, cache.size, cache.size),
        cache=cache,
        repeated=steps,
        required=frozenset().union(*(part.required for part in parts), *filter(None, batches)),
        apart=(group.uncached or group).fused(told),
        hides_nan=group.hides_nan,
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
    """What a Transpose and a Reshape make of heads, perhaps behind one that keeps their shape; None for anything else."""
    same = only_reader(output, "Reshape", program)
    apart = None if same is None else views.unchanged(program.steps[same])
    output = output if same is None or apart is None else program.steps[same].outputs[0]
    turned = only_reader(output, "Transpose", program)
    reshaped = None if turned is None else only_reader(program.steps[turned].outputs[0], "Reshape", program)
    if turned is None or reshaped is None or tuple(program.steps[turned].attributes.get("perm", ())) != HEADS_APART:
        return None
    out = program.steps[reshaped].outputs[0]
    merged = views.merged(program.steps[reshaped], out)
    if merged is None:
        return None
    between = () if same is None or apart is None else (same,)
    return _Result(out, (*between, turned, reshaped), (merged, *([apart] if apart else [])))


@dataclass(frozen=True, slots=True)
class GivenKeys:
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
        """See ``RunWords``."""
        return tuple(filter(None, (self.keys, self.values, self.condition, self.added)))

    @property
    def outputs(self) -> tuple[int, ...]:
        """See ``RunWords``."""
        return ()

    def words(self, given: Given, lead: tuple[int, ...], shared: dict[Hashable, Any]) -> CacheWords | None:
        """See ``RunWords``."""
        keys, values = given[self.keys], given[self.values]
        if self.is_single and keys.ndim == values.ndim == SINGLE:
            keys, values = keys[:, None], values[:, None]
        shape = (lead[0], self.heads, keys.shape[2] if keys.ndim == 4 else 0, self.size)
        if (
            keys.shape != shape
            or values.shape != shape
            or not shape[2]
            or lead[1] > MOST_DECODE_QUERIES
            or not is_readable(keys, values)
        ):
            return None
        name = ("given", self.condition, self.added, shape)
        if name not in shared:
            scores = (lead[0], self.heads, lead[1], shape[2])
            shared[name] = scores_added(given, self.condition, self.filter_value, self.added, scores)
        mask = shared[name]
        if mask is NotImplemented:
            return None
        counts = common_counts(lead[0], 0, 0, shape[2])
        places = (address_of(keys), *keys.strides[:3], address_of(values), *values.strides[:3])
        masked = (0,) * 5 if mask is None else (address_of(mask), *strides_along(mask))
        numbers: list[tuple[Hashable, int]] = [
            ((kind, self.own), number) for kind, number in zip(PLACES, (*places, *masked), strict=True)
        ]
        numbers += [(("counts", self.own), address_of(counts)), (("frames", self.own), shape[2])]
        return CacheWords(tuple(numbers), (), (counts, mask))


def _of_new(group: AttentionGroup, operands: Sequence[Heads], out: int, program: FusibleProgram) -> Any:
    """Its cache, task, widths of rows and what is read, where it lengthens a cache; None if heads do not go together.

    Args:
        group: the steps.
        operands: queries, new keys and new values.
        out: value that the rows of the result are.
        program: the program.
    """
    query, key, value = operands
    heads, size = query.heads, query.size
    # A single head is all heads' without being repeated.
    is_common = key.heads == value.heads == 1 == group.key.shared and group.key.target is None is group.value.target
    shared = heads if is_common else group.key.shared
    if {(each.heads * shared, each.size) for each in (key, value)} != {(heads, size)} or size % VECTOR:
        return None
    pasts = (group.key.past, group.value.past, group.key.present, group.value.present)
    condition, number, added = group.condition, group.filter_value, group.added
    is_single = len(program.values[group.key.present].shape) == SINGLE
    cache = CacheStep(
        *(key.heads, shared, size, False, *pasts),
        condition=condition,
        filter_value=number,
        added=added,
        is_single=is_single,
    )
    places = [each.place for each in operands]
    own = (*places, Rows(out, heads * size * FLOAT_BYTES))
    task = attending({"scale": group.scale}, cache, own, None, (None, None))
    widths = {each.index: each.row // FLOAT_BYTES for each in own}
    return cache, task, widths, tuple(dict.fromkeys(each.index for each in places))


def _of_given(group: AttentionGroup, operands: Sequence[Heads], out: int, program: FusibleProgram) -> Any:
    """As ``_of_new``, over keys and values that others made, as those of an encoder."""
    (query,), (keys, values) = operands, group.new
    heads, size = query.heads, query.size
    shapes = [program.values[index].shape if index in program.values else () for index in (keys, values)]
    rank = len(program.values[group.query_value].shape)
    apart = [shape if rank > SINGLE or len(shape) != SINGLE else (shape[0], 1, *shape[1:]) for shape in shapes]
    if any(len(shape) != 4 or (shape[1], shape[3]) != (heads, size) for shape in apart) or size % VECTOR:
        return None
    masked = (group.condition, group.filter_value, group.added)
    given = GivenKeys(out, heads, size, keys, values, *masked, rank == SINGLE)
    row = heads * size * FLOAT_BYTES
    words = _terms(*((kind, out) for kind in PLACES))
    keys_words, values_words, mask = words[:4], words[4:8], words[8:]
    positions, frames = _terms(("counts", out), ("frames", out))
    arguments = DecodeAttention.of(
        (*NO_ROTATION, positions, BATCH, LENGTH),
        query.place.words(size),
        (keys_words, values_words),
        Rows(out, row).words(size),
        (heads, 1, size, size),
        (0, frames, 0, 0, 0, frames),
        workspace=(WORK, WORK_BYTES),
        factors=(group.scale, 0.0),
        mask=mask,
    )
    task = TaskWords(MODULE, "decode_attention", arguments.words)
    return given, task, {query.rows.value: query.width, out: heads * size}, (query.rows.value,)


def _terms(*names: Hashable) -> tuple[Terms, ...]:
    """Words that are one number each."""
    return tuple([((name, 1),) for name in names])
