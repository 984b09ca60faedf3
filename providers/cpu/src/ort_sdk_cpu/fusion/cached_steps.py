"""Attention of few queries over a cache as a part of a sequence: its task's arguments follow from rows, past and capacity."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np

from ort_sdk.api import FusibleProgram, FusibleStep, HostArray, TensorElementType, may_overwrite
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk_cpu.addresses import address_of
from ort_sdk_cpu.kernels.cached_attention import MOST_FEW, Rotary
from ort_sdk_cpu.kernels.group_query_attention import counts_of
from ort_sdk_cpu.kernels.recycled import ResultMemory
from ort_sdk_cpu.task_sequence import TaskWords, Terms, Word

__all__ = ["CacheStep", "CacheWords", "cached_attention"]

FLOAT_BYTES = 4
VECTOR = 16
LASTS, LONGEST, COS, SIN = 5, 6, 7, 8
FIRST_UNSUPPORTED, MOST_OUTPUTS = 9, 3

Caches = Mapping[int, HostArray]
"""Inputs of a sequence by value."""


@dataclass(frozen=True, slots=True)
class CacheWords:
    """What a run has of a cache."""

    numbers: tuple[tuple[Hashable, int], ...]
    """Names of numbers of the arguments, and what they are."""
    keys: HostArray
    """Present keys, to be written."""
    values: HostArray
    kept: HostArray
    """What the task reads beside."""


@dataclass(frozen=True, slots=True)
class CacheStep:
    """The cache of a step of GroupQueryAttention."""

    key_heads: int
    group: int
    size: int
    is_causal: bool
    past_key: int
    past_value: int
    keys: int
    """Value that the present keys are, as the next."""
    values: int
    lasts: int
    longest: int
    memory: ResultMemory = field(default_factory=ResultMemory)

    @property
    def inputs(self) -> tuple[int, ...]:
        """Values that are read beside rows."""
        return self.past_key, self.past_value, self.lasts, self.longest

    def words(self, given: Caches, lead: tuple[int, ...], shared: dict[Hashable, Any]) -> CacheWords | None:
        """What is to be put into the task's arguments; None for arrays that it does not take.

        Args:
            given: inputs by value.
            lead: batch and tokens.
            shared: what caches of one run have in common.
        """
        past_key, past_value = given[self.past_key], given[self.past_value]
        if past_key.ndim != len(lead) + 2 or self.group * lead[1] > MOST_FEW:
            return None
        past = past_key.shape[2]
        is_shaped = past_key.shape == past_value.shape == (lead[0], self.key_heads, past, self.size)
        counted = self._counted(given, lead, past, shared)
        if counted is None or not is_shaped or not past_key.flags.c_contiguous or not past_value.flags.c_contiguous:
            return None
        counts, capacity = counted
        is_in_place = capacity == past and may_overwrite(past_key) and may_overwrite(past_value)
        shape = (lead[0], self.key_heads, capacity, self.size)
        keys, values = (past_key, past_value) if is_in_place else (self.memory.empty(shape), self.memory.empty(shape))
        own = self.keys
        numbers = (
            *((("past key", own), address_of(past_key)), (("past value", own), address_of(past_value))),
            *((("keys", own), address_of(keys)), (("values", own), address_of(values))),
            *((("past", own), past), (("capacity", own), capacity), (("counts", own), address_of(counts))),
        )
        return CacheWords((*numbers, (("in place", own), 1)) if is_in_place else numbers, keys, values, counts)

    def _counted(
        self, given: Caches, lead: tuple[int, ...], past: int, shared: dict[Hashable, Any]
    ) -> tuple[HostArray, int] | None:
        """``CachedAttention.counts``, and rows of the present."""
        name = (self.lasts, self.longest, past, self.is_causal)
        if name not in shared:
            longest = int(given[self.longest].flat[0])
            counts = counts_of(given[self.lasts], longest, lead, past, self.is_causal)
            shared[name] = None if counts is None else (np.array(counts, np.int64), max(past, longest))
        found: tuple[HostArray, int] | None = shared[name]
        return found


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one of queries, keys, values and results, in bytes."""

    index: int
    row: int
    offset: int = 0

    def words(self, size: int) -> tuple[Word, ...]:
        """Address, and steps along batch, heads and rows."""
        start: Terms = ((("value", self.index), 1), *([("one", self.offset)] if self.offset else []))
        return start, (("length", self.row),), size * FLOAT_BYTES, self.row


def cached_attention(step: FusibleStep, program: FusibleProgram) -> Any:
    """The cache, task, widths of rows, what is read, and arrays that it needs, of a GroupQueryAttention; None for other nodes."""
    padded = (*step.inputs, *[0] * (FIRST_UNSUPPORTED - len(step.inputs)))
    query, key, value, past_key, past_value, lasts, longest, cos, sin = padded[:FIRST_UNSUPPORTED]
    outputs, heads, key_heads = step.outputs, int(step.attributes["num_heads"]), int(step.attributes["kv_num_heads"])
    has_more = any(step.inputs[FIRST_UNSUPPORTED:]) or len(outputs) != MOST_OUTPUTS or not all(outputs)
    if has_more or not (past_key and past_value) or bool(key) != bool(value) or step.attributes.get("sliding_window_cache", 0):
        return None
    width, parts = program.values[query].shape[-1], heads if key else heads + 2 * key_heads
    size = width // parts
    if heads % key_heads or width % parts or size % VECTOR or not _are_fit(step, program):
        return None
    rotary = _rotary(step, program, cos, sin, size)
    if rotary is NotImplemented:
        return None
    first, second = heads * size * FLOAT_BYTES, (heads + key_heads) * size * FLOAT_BYTES
    row, key_row = width * FLOAT_BYTES, key_heads * size * FLOAT_BYTES
    split = (_Rows(key, key_row), _Rows(value, key_row)) if key else (_Rows(query, row, first), _Rows(query, row, second))
    places = (_Rows(query, row), *split, _Rows(outputs[0], first))
    is_causal = bool(step.attributes.get("causal", 1))
    cache = CacheStep(
        key_heads, heads // key_heads, size, is_causal, past_key, past_value, outputs[1], outputs[2], lasts, longest
    )
    smooth = np.zeros(heads, np.float32) if step.attributes.get("smooth_softmax", -1) == 1 else None
    task = TaskWords("cached_attention", "attend_few", tuple(_words(step, cache, places, rotary, smooth)))
    widths = {each.index: each.row // FLOAT_BYTES for each in places}
    return cache, task, widths, tuple(dict.fromkeys((query, *filter(None, (key, value))))), (rotary, smooth)


def _are_fit(step: FusibleStep, program: FusibleProgram) -> bool:
    """Whether types and dimensions are those that the task takes."""
    types = [TensorElementType.FLOAT] * LASTS + [TensorElementType.INT32] * 2 + [TensorElementType.FLOAT] * 2
    shown = [(program.values.get(index), kind) for index, kind in zip(step.inputs, types, strict=False) if index]
    return all(each is not None and each.element_type is kind for each, kind in shown) and len(shown[0][0].shape) == 3  # type: ignore[union-attr]


def _rotary(step: FusibleStep, program: FusibleProgram, cos: int, sin: int, size: int) -> Any:
    """How to rotate; None for not at all, ``NotImplemented`` for what is not known."""
    if not step.attributes.get("do_rotary", 0) or not cos or not sin:
        return None
    tables: list[Any] = [program.values[index].constant for index in (cos, sin)]
    if any(table is None for table in tables):
        return NotImplemented
    is_interleaved = bool(step.attributes.get("rotary_interleaved", 0))
    return Rotary.of(tables[0], tables[1], None, (), size, is_interleaved=is_interleaved)


def _words(
    step: FusibleStep, cache: CacheStep, places: tuple[_Rows, ...], rotary: Rotary | None, smooth: HostArray | None
) -> Iterator[Word]:
    """As ``compiled.cached_attention`` has them."""
    size, own, window = cache.size, cache.keys, int(step.attributes.get("local_window_size", -1))
    row = size * FLOAT_BYTES
    *new, out = places
    for each in new:
        yield from each.words(size)
    for name in ("past key", "past value"):
        yield from ((((name, own), 1),), ((("past", own), cache.key_heads * row),), ((("past", own), row),))
    for name in ("keys", "values"):
        yield from ((((name, own), 1),), ((("capacity", own), cache.key_heads * row),), ((("capacity", own), row),), row)
    yield from out.words(size)
    yield from [0] * 8
    yield from [0] * 7 if rotary is None else rotary.arguments
    yield from (((("counts", own), 1),), 0 if smooth is None else address_of(smooth))
    yield from ((("batch", 1),), cache.key_heads, cache.group, (("length", 1),), size, size)
    yield from (window - 1 if window >= 0 else -1, 0 if cache.is_causal else -1)
    yield from (((("past", own), 1),), ((("capacity", own), 1),), 1, ((("in place", own), 1),))
    yield from (1, 1, (("work", 1),), (("work bytes", 1),), 0)
    yield from (float(step.attributes.get("scale", 0.0)) or 1 / math.sqrt(size), float(step.attributes.get("softcap", 0.0)))
    yield (("length", 1),)
