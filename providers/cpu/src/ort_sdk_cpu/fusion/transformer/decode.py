"""Attention of few queries over a key-value cache, and RotaryEmbedding, as parts of a sequence.

Their tasks' arguments are known in a run only, from rows of the past and capacity: a ``RunBinder`` gives them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from ort_sdk.api import FusibleProgram, FusibleStep, HostArray, TensorElementType, may_overwrite
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.opset.contrib.attention import MASK_FILTER_VALUE
from ort_sdk_cpu.attention.arguments.decode import MODULE, DecodeAttention
from ort_sdk_cpu.attention.arguments.decode import thread_workspace_bytes as float_workspace_bytes
from ort_sdk_cpu.attention.arguments.decode_f16 import MODULE as MODULE_F16
from ort_sdk_cpu.attention.arguments.decode_f16 import DecodeAttentionFloat16
from ort_sdk_cpu.attention.arguments.decode_f16 import thread_workspace_bytes as half_workspace_bytes
from ort_sdk_cpu.attention.arguments.operands import NO_BIAS
from ort_sdk_cpu.attention.arguments.rotary import MODULE as ROTARY
from ort_sdk_cpu.attention.arguments.rotary import RotaryEmbedding
from ort_sdk_cpu.attention.decode import (
    NO_ROTATION,
    Rotary,
    broadcasts_to,
    common_cache_positions,
    reads_float16,
    strides_along,
)
from ort_sdk_cpu.attention.group_query import cache_positions_array, cache_positions_of
from ort_sdk_cpu.attention.operators import bias_of_mask
from ort_sdk_cpu.attention.recognized_decode import score_bias_of
from ort_sdk_cpu.attention.select import MOST_DECODE_QUERIES
from ort_sdk_cpu.jit.task_sequence import LinearTerms, TaskWords
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.platform.addresses import address_of

from .row_step import BATCH, FLOAT_BYTES, LENGTH, WORK, WORK_BYTES, Given, RowOperand, RunArguments

__all__ = [
    "KeyValueCache",
    "decode_task",
    "group_query_attention",
    "multi_head_over_cache",
    "rotary_embedding",
    "score_bias_in",
]

HALF_BYTES = 2
VECTOR = 16
PAST_KEY, LASTS, LONGEST, COS, SIN = 3, 5, 6, 7, 8
FIRST_UNSUPPORTED, MOST_OUTPUTS, MULTI_HEAD_INPUTS = 9, 3, 8


@dataclass(frozen=True, slots=True)
class KeyValueCache:
    """The cache of an attention, which it lengthens."""

    key_heads: int
    group: int
    size: int
    is_causal: bool
    past_key: int
    past_value: int
    keys: int
    """Value of the present keys, as the next of the present values."""
    values: int
    lasts: int = 0
    """Last positions of sequences and the most tokens of one, for GroupQueryAttention; 0 where all rows of the past count."""
    longest: int = 0
    mask: int = 0
    """Which keys count, (batch, keys); 0 for all."""
    filter_value: float = 0.0
    condition: int = 0
    """Which scores are kept, broadcast to (batch, heads, tokens, keys); 0 for all."""
    added: int = 0
    """Numbers added to the scores, broadcast in the same way; 0 for none."""
    is_single: bool = False
    """Whether caches are (batch, rows, size), those of a single head."""
    is_half: bool = False
    """Whether the cache is float16."""
    memory: ResultAllocator = field(default_factory=ResultAllocator)

    @property
    def work(self) -> int:
        """Bytes that a thread needs for itself."""
        thread_workspace_bytes = half_workspace_bytes if self.is_half else float_workspace_bytes
        return thread_workspace_bytes(MOST_DECODE_QUERIES, self.size, self.size)

    @property
    def inputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        others = (self.lasts, self.longest, self.mask, self.condition, self.added)
        return tuple(filter(None, (self.past_key, self.past_value, *others)))

    @property
    def has_scores(self) -> bool:
        """Whether there is a score bias."""
        return bool(self.mask or self.condition or self.added)

    @property
    def outputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        return self.keys, self.values

    def bind(self, given: Given, batch_shape: tuple[int, ...], shared: dict[Hashable, Any]) -> RunArguments | None:
        """See ``RunBinder``."""
        past_key, past_value = given[self.past_key], given[self.past_value]
        heads = () if self.is_single else (self.key_heads,)
        if past_key.ndim != len(heads) + 3 or self.group * batch_shape[1] > MOST_DECODE_QUERIES:
            return None
        past = past_key.shape[-2]
        if (self.condition or self.added) and past + batch_shape[1] == 1:
            # The steps may broadcast a single row.
            return None
        is_shaped = past_key.shape == past_value.shape == (batch_shape[0], *heads, past, self.size)
        counted = self._counted(given, batch_shape, past, shared) if is_shaped else None
        if counted is None or not past_key.flags.c_contiguous or not past_value.flags.c_contiguous:
            return None
        cache_positions, capacity, mask = counted
        is_in_place = capacity == past and may_overwrite(past_key) and may_overwrite(past_value)
        shape = (batch_shape[0], *heads, capacity, self.size)
        keys, values = (past_key, past_value) if is_in_place else (self._new(shape), self._new(shape))
        own = self.keys
        numbers: list[tuple[Hashable, int]] = [
            *((("past key", own), address_of(past_key)), (("past value", own), address_of(past_value))),
            *((("keys", own), address_of(keys)), (("values", own), address_of(values))),
            *((("past", own), past), (("capacity", own), capacity), (("counts", own), address_of(cache_positions))),
        ]
        if mask is not None:
            numbers.append((("mask", own), address_of(mask)))
            numbers += [((("masked", axis), own), step) for axis, step in enumerate(strides_along(mask))]
        if is_in_place:
            numbers.append((("in place", own), 1))
        return RunArguments(tuple(numbers), ((self.keys, keys), (self.values, values)), (cache_positions, mask))

    def _new(self, shape: tuple[int, ...]) -> HostArray:
        """Memory of a present; the size of a head is even."""
        return self.memory.empty((*shape[:-1], shape[-1] // 2)).view(np.float16) if self.is_half else self.memory.empty(shape)

    def _counted(
        self, given: Given, batch_shape: tuple[int, ...], past: int, shared: dict[Hashable, Any]
    ) -> tuple[HostArray, int, HostArray | None] | None:
        """``CachedAttention.cache_positions``, rows of the present, and score bias; None for what the task does not take."""
        name = (self.lasts, self.longest, self.mask, self.condition, self.added, past, self.is_causal)
        if name not in shared:
            shared[name] = (
                self._counted_tokens(given, batch_shape, past) if self.lasts else self._masked(given, batch_shape, past)
            )
        found: tuple[HostArray, int, HostArray | None] | None = shared[name]
        return found

    def _counted_tokens(self, given: Given, batch_shape: tuple[int, ...], past: int) -> Any:
        longest = int(given[self.longest].flat[0])
        cache_positions = cache_positions_of(given[self.lasts], longest, batch_shape, past, self.is_causal)
        return None if cache_positions is None else (cache_positions_array(cache_positions), max(past, longest), None)

    def _masked(self, given: Given, batch_shape: tuple[int, ...], past: int) -> Any:
        keys = past + batch_shape[1]
        cache_positions = common_cache_positions(batch_shape[0], past, past, keys)
        if self.condition or self.added:
            return self._scored(given, (batch_shape[0], self.group * self.key_heads, batch_shape[1], keys), cache_positions)
        if not self.mask:
            return cache_positions, keys, None
        mask = given[self.mask]
        if mask.shape != (batch_shape[0], keys) or keys == 1 or (self.is_causal and batch_shape[1] > 1):
            return None
        return cache_positions, keys, bias_of_mask(mask, (batch_shape[0], 1, batch_shape[1], keys), self.filter_value)

    def _scored(self, given: Given, scores: tuple[int, int, int, int], cache_positions: HostArray) -> Any:
        numbers = score_bias_in(given, self.condition, self.filter_value, self.added, scores)
        return None if numbers is NotImplemented else (cache_positions, scores[-1], numbers)


@dataclass(frozen=True, slots=True)
class RotaryOfIds:
    """Rows of cosines and sines by position ids."""

    own: int
    """Value that is the result."""
    ids: int
    rows: int

    @property
    def inputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        return (self.ids,)

    @property
    def outputs(self) -> tuple[int, ...]:
        """See ``RunBinder``."""
        return ()

    def bind(self, given: Given, batch_shape: tuple[int, ...], shared: dict[Hashable, Any]) -> RunArguments | None:
        """See ``RunBinder``."""
        ids = given[self.ids]
        name = ("rows", self.ids, self.rows)
        if name not in shared:
            is_shaped = ids.shape == batch_shape and ids.dtype == np.int64 and ids.flags.c_contiguous
            shared[name] = is_shaped and ids.min() >= 0 and ids.max() < self.rows
        return RunArguments(((("ids", self.own), address_of(ids)),), (), (ids,)) if shared[name] else None


def score_bias_in(given: Given, condition: int, filter_value: float, added: int, scores: tuple[int, ...]) -> Any:
    """Score bias of a shape, as ``score_bias_of`` gives it; ``NotImplemented`` where shapes do not suit.

    Args:
        given: inputs of a sequence by value.
        condition: value that says which scores are kept; 0 for all.
        filter_value: what the others become.
        added: value that is added; 0 for none.
        scores: the shape.
    """
    keeps, numbers = (given[index] if index else None for index in (condition, added))
    if not (broadcasts_to(keeps, scores) and broadcasts_to(numbers, scores)):
        return NotImplemented
    return score_bias_of(keeps, filter_value, numbers)


def group_query_attention(step: FusibleStep, program: FusibleProgram) -> Any:
    """(cache, task, widths of rows, what is read, constants) of a GroupQueryAttention; None for other nodes."""
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
    split = (
        (RowOperand(key, key_row), RowOperand(value, key_row))
        if key
        else (RowOperand(query, row, first), RowOperand(query, row, second))
    )
    operands = (RowOperand(query, row), *split, RowOperand(outputs[0], first))
    is_causal = bool(step.attributes.get("causal", 1))
    is_half = program.values[past_key].element_type is TensorElementType.FLOAT16
    numbers = (key_heads, heads // key_heads, size, is_causal, past_key, past_value, outputs[1], outputs[2], lasts, longest)
    cache = KeyValueCache(*numbers, is_half=is_half)
    smooth = np.zeros(heads, np.float32) if step.attributes.get("smooth_softmax", -1) == 1 else None
    task = decode_task(step.attributes, cache, operands, rotary, (smooth, None))
    widths = {each.index: each.row // FLOAT_BYTES for each in operands}
    return cache, task, widths, tuple(dict.fromkeys((query, *filter(None, (key, value))))), (rotary, smooth)


def _are_fit(step: FusibleStep, program: FusibleProgram) -> bool:
    """Whether types and dimensions are those that the task takes."""
    past = program.values.get(step.inputs[PAST_KEY])
    is_half = past is not None and past.element_type is TensorElementType.FLOAT16 and reads_float16()
    caches = [TensorElementType.FLOAT16 if is_half else TensorElementType.FLOAT] * 2
    types = [TensorElementType.FLOAT] * PAST_KEY + caches + [TensorElementType.INT32] * 2 + [TensorElementType.FLOAT] * 2
    shown = [(program.values.get(index), kind) for index, kind in zip(step.inputs, types, strict=False) if index]
    return all(each is not None and each.element_type is kind for each, kind in shown) and len(shown[0][0].shape) == 3  # type: ignore[union-attr]


def _rotary(step: FusibleStep, program: FusibleProgram, cos: int, sin: int, size: int) -> Any:
    """The rotation; None for none, ``NotImplemented`` for tables that are not constant."""
    if not step.attributes.get("do_rotary", 0) or not cos or not sin:
        return None
    tables: list[Any] = [program.values[index].constant for index in (cos, sin)]
    if any(table is None for table in tables):
        return NotImplemented
    is_interleaved = bool(step.attributes.get("rotary_interleaved", 0))
    return Rotary.of(tables[0], tables[1], None, (), size, is_interleaved=is_interleaved)


def decode_task(
    attributes: Mapping[str, Any],
    cache: KeyValueCache,
    operands: tuple[RowOperand, ...],
    rotary: Rotary | None,
    vectors: tuple[HostArray | None, HostArray | None],
) -> TaskWords:
    """The task of an attention over a cache.

    Args:
        attributes: scale, softcap and window of the node.
        cache: that it lengthens.
        operands: rows of queries, new keys, new values and result.
        rotary: rotation of queries and keys; None for none.
        vectors: sinks, and the bias of queries, keys and values; None for none.
    """
    smooth, bias = vectors
    size, own, window = cache.size, cache.keys, int(attributes.get("local_window_size", -1))
    row, cached = size * FLOAT_BYTES, size * (HALF_BYTES if cache.is_half else FLOAT_BYTES)
    past, capacity, is_in_place, positions = _terms(*((name, own) for name in ("past", "capacity", "in place", "counts")))
    q, k, v, out = (each.words(size) for each in operands)
    past_head = ((("past", own), cached),)
    pasts = [
        (_address(name, own), ((("past", own), cache.key_heads * cached),), past_head) for name in ("past key", "past value")
    ]
    head = ((("capacity", own), cached),)
    batch = ((("capacity", own), cache.key_heads * cached),)
    start, part = 0 if bias is None else address_of(bias), cache.group * cache.key_heads * row
    kind = DecodeAttentionFloat16 if cache.is_half else DecodeAttention
    arguments = kind.of(
        (*(NO_ROTATION if rotary is None else rotary.words), positions, BATCH, LENGTH),
        q,
        ((_address("keys", own), batch, head, cached), (_address("values", own), batch, head, cached)),
        out,
        (cache.key_heads, cache.group, size, size),
        (past, capacity, 1, is_in_place, LENGTH, capacity),
        workspace=(WORK, WORK_BYTES),
        factors=(float(attributes.get("scale", 0.0)) or 1 / math.sqrt(size), float(attributes.get("softcap", 0.0))),
        new=(k, v),
        past=(pasts[0], pasts[1]),
        mask=(_address("mask", own), *_terms(*((("masked", axis), own) for axis in range(4)))) if cache.has_scores else NO_BIAS,
        biases=(start, start + part, start + 2 * part) if start else (0, 0, 0),
        sinks=0 if smooth is None else address_of(smooth),
        window=(window - 1 if window >= 0 else -1, 0 if cache.is_causal else -1),
        rotated=0,
    )
    task = (MODULE_F16, "decode_attention_f16") if cache.is_half else (MODULE, "decode_attention")
    return TaskWords(*task, arguments.words)


def _address(name: str, own: int) -> LinearTerms:
    """Address that a run gives."""
    return (((name, own), 1),)


def _terms(*names: Hashable) -> tuple[LinearTerms, ...]:
    """Words that are one number each."""
    return tuple([((name, 1),) for name in names])


def multi_head_over_cache(step: FusibleStep, program: FusibleProgram) -> Any:
    """As ``group_query_attention``, of a MultiHeadAttention with a past and no score bias."""
    padded, outputs = (*step.inputs, *[0] * (MULTI_HEAD_INPUTS - len(step.inputs))), step.outputs
    query, key, value, bias, mask, added, past_key, past_value = padded[:MULTI_HEAD_INPUTS]
    if (
        any(padded[MULTI_HEAD_INPUTS:])
        or added
        or len(outputs) != MOST_OUTPUTS
        or not all((*outputs, key, value, past_key, past_value))
    ):
        return None
    shown = [program.values.get(index) for index in (query, key, value, past_key, past_value)]
    heads = int(step.attributes["num_heads"])
    if any(each is None or each.element_type is not TensorElementType.FLOAT for each in shown):
        return None
    shapes = [each.shape for each in shown if each is not None]
    width = shapes[0][-1]
    vector: Any = program.values[bias].constant if bias else None
    is_known = not bias or (vector is not None and vector.shape == (3 * width,) and vector.flags.c_contiguous)
    if {len(shape) for shape in shapes[:3]} != {3} or {shape[-1] for shape in shapes[:3]} != {width} or not is_known:
        return None
    size = width // heads
    if width % heads or size % VECTOR or (mask and program.values[mask].element_type is not TensorElementType.INT32):
        return None
    numbers = {"mask": mask, "filter_value": float(step.attributes.get("mask_filter_value", MASK_FILTER_VALUE))}
    is_causal = bool(step.attributes.get("unidirectional", 0))
    cache = KeyValueCache(heads, 1, size, is_causal, past_key, past_value, outputs[1], outputs[2], **numbers)  # type: ignore[arg-type]
    row = width * FLOAT_BYTES
    operands = tuple(RowOperand(index, row) for index in (query, key, value, outputs[0]))
    task = decode_task(step.attributes, cache, operands, None, (None, vector))
    return cache, task, dict.fromkeys((query, key, value, outputs[0]), width), (query, key, value), (vector,)


def rotary_embedding(step: FusibleStep, program: FusibleProgram) -> Any:
    """As ``group_query_attention``, of a RotaryEmbedding of ``com.microsoft`` with a row for each token."""
    x, ids, cos, sin = step.inputs
    shown, out = program.values[x], step.outputs[0]
    tables: list[Any] = [program.values[index].constant for index in (cos, sin)]
    if len(shown.shape) != 3 or shown.element_type is not TensorElementType.FLOAT or any(table is None for table in tables):
        return None
    heads, width, row = int(step.attributes.get("num_heads", 0)), shown.shape[-1], shown.shape[-1] * FLOAT_BYTES
    if tables[0].ndim != 2 or not tables[0].shape[1]:
        return None
    if not (heads and step.attributes.get("rotary_embedding_dim", 0)):
        heads = width // (2 * tables[0].shape[1])
    is_interleaved = bool(step.attributes.get("interleaved", 0))
    rotary = Rotary.of(tables[0], tables[1], None, (), width // (heads or 1), is_interleaved=is_interleaved)
    if not heads or width % heads or rotary is NotImplemented:
        return None
    size, (*tables, _, rows) = width // heads, rotary.words
    words = (*tables, _address("ids", out), rows)
    arguments = RotaryEmbedding.of(
        RowOperand(x, row).words(size), RowOperand(out, row).words(size), words, (BATCH, LENGTH, heads, size), 0
    )
    task = TaskWords(ROTARY, "rotary_embedding", arguments.words)
    return RotaryOfIds(out, ids, rows), task, {x: width, out: width}, (x,), (rotary,)
