"""GroupQueryAttention in float32 by compiled tasks: nothing is copied between rotation, cache and attention.

A cache of float16 is read and filled where it is; only many queries at once go through one of float32, which is not kept.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, Slot, TensorElementType, may_overwrite
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.contrib.query_groups import GroupSettings
from ort_sdk_cpu.kernel.eager import direct_call
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.normalization.arguments.rows import MODULE as NORMALIZATION
from ort_sdk_cpu.normalization.arguments.rows import Normalization

from .arguments.lengths import MODULE as LENGTHS
from .arguments.lengths import CachePositions, IndexCheck
from .decode import FLOAT16, CachedAttention, Rotary, has_contiguous_rows, reads_float16, takes_float32
from .operators import is_score_bias
from .select import attends_few

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskCall

__all__ = ["cache_positions_array", "cache_positions_of"]

UNSUPPORTED_INPUTS = (12, 13)
"""Scales of a quantized cache."""
PAST, PRESENT = (3, 4), (1, 2)
LAST_POSITIONS, LONGEST, ROWS = 5, 6, 9
INTEGER_INPUTS = (LAST_POSITIONS, LONGEST, ROWS)
NORMS = (14, 15)
"""Weights of normalizations of queries and keys."""
INPUTS = 12
OUTPUTS = 3
CACHE_AXES = 4

_FLOAT = np.dtype(np.float32)
_TYPES: dict[int, np.dtype[Any]] = {LAST_POSITIONS: np.dtype(np.int32), LONGEST: np.dtype(np.int32), ROWS: np.dtype(np.int64)}


@direct_call("GroupQueryAttention", domain="com.microsoft")
def group_query_attention(info: KernelInfo) -> Callable[..., Any] | None:
    """Any float32 node, with a cache of float32 or float16, that keeps all tokens in its cache and asks for no scores."""
    caches = [*(info.inputs[index] for index in PAST if index < len(info.inputs)), *info.outputs[1:OUTPUTS]]
    types = {None if argument is None else argument.element_type for argument in caches} - {None}
    others = [argument for index, argument in enumerate(info.inputs) if index not in (*PAST, *INTEGER_INPUTS)]
    has_more = len(info.outputs) > OUTPUTS or any(map(info.has_input, UNSUPPORTED_INPUTS))
    if has_more or info.attribute("sliding_window_cache", 0) or not takes_float32((*others, *info.outputs[:1])):
        return None
    is_half = types == {TensorElementType.FLOAT16} and reads_float16()
    if not is_half and types - {TensorElementType.FLOAT}:
        return None
    norms = _HeadNorms(info) if any(map(info.has_input, NORMS)) else None
    return _GroupQueryAttention(GroupSettings.of(info), len(info.outputs), FLOAT16 if is_half else _FLOAT, norms).call


class _HeadNorms:
    """Normalizations of the heads of queries and keys, by a compiled task.

    Args:
        info: the node.
    """

    def __init__(self, info: KernelInfo) -> None:
        self._epsilon = float(info.attribute("qk_norm_epsilon", 1e-6))
        self._results = ResultAllocator()

    def __call__(self, heads: HostArray, weight: HostArray | None) -> HostArray | None:
        """Rows (batch, tokens, heads * size) with each head divided by its root mean square, times the weight (size,).

        None if the arrays do not fit.
        """
        if weight is None:
            return heads
        if weight.ndim != 1 or not weight.size or heads.shape[2] % weight.size or not weight.flags.c_contiguous:
            return None
        from ort_sdk_cpu.jit.task import task_function

        heads, out = np.ascontiguousarray(heads), self._results.empty(heads.shape)
        if heads.size:
            sizes = (heads.size // weight.size, weight.size)
            arguments = Normalization(heads, None, None, None, out, weight, None, *sizes, self._epsilon)
            task_function(NORMALIZATION, "rms_normalization")(threads_for(heads.size), arguments)
        return out


class _GroupQueryAttention:
    """One node."""

    in_place = tuple(zip(PAST, PRESENT, strict=True))
    """Past keys and values, and what becomes of them."""

    def __init__(
        self, settings: GroupSettings, outputs: int, cache_type: np.dtype[Any] = _FLOAT, norms: _HeadNorms | None = None
    ) -> None:
        self._settings, self._outputs, self._results = settings, outputs, ResultAllocator()
        self._cache_type, self._norms = cache_type, norms
        self.algorithm: str | None = None
        """The one used last."""

    def call(
        self,
        query: HostArray,
        key: HostArray | None,
        value: HostArray | None,
        past_key: HostArray | None,
        past_value: HostArray | None,
        seqlens_k: HostArray,
        total_sequence_length: HostArray,
        cos_cache: HostArray | None = None,
        sin_cache: HostArray | None = None,
        position_ids: HostArray | None = None,
        attention_bias: HostArray | None = None,
        head_sink: HostArray | None = None,
        _k_scale: HostArray | None = None,
        _v_scale: HostArray | None = None,
        q_norm: HostArray | None = None,
        k_norm: HostArray | None = None,
    ) -> Any:
        """The node's outputs."""
        if total_sequence_length.size != 1 or (past_key is not None and past_key.ndim != CACHE_AXES):
            return NotImplemented
        past_rows, longest = 0 if past_key is None else past_key.shape[2], int(total_sequence_length.flat[0])
        cache_positions = cache_positions_of(seqlens_k, longest, query.shape[:2], past_rows, self._settings.causal)
        if cache_positions is None:
            return NotImplemented
        is_in_place = past_rows >= longest and may_overwrite(past_key) and may_overwrite(past_value)
        state = _State(
            past_key, past_value, cache_positions_array(cache_positions), max(count[2] for count in cache_positions), longest
        )
        state.cache_type = self._cache_type
        if is_in_place:
            state.keys, state.values = past_key, past_value
        rotation = (cos_cache, sin_cache, position_ids)
        given = self._normalized(query, key, value, q_norm, k_norm)
        if given is None:
            return NotImplemented
        is_widened = self._cache_type == FLOAT16 and not self._decodes(given)
        widened = _WidenedCache.of(state, given, self._settings) if is_widened else None
        if is_widened and widened is None:
            return NotImplemented
        cached = self._cached(given, state, rotation, (attention_bias, head_sink))
        if cached is None:
            return NotImplemented
        cached.is_in_place = is_in_place or widened is not None
        cached.run()
        self.algorithm = cached.algorithm
        keys, values = (cached.keys, cached.values) if widened is None else widened.results()
        return cached.out if self._outputs < 2 else (cached.out, keys, values)[: self._outputs]

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot], fallback: Callable[[], Any]) -> Any:
        """A call of tasks on slots, for a longest sequence that is known; None for what tasks do not take."""
        from .decode_bound import BoundTasks, NodeTasks, Placeholders, cache_slots

        if not inputs[LONGEST].is_constant or self._norms is not None:
            return None
        placeholders, longest = Placeholders(), int(inputs[LONGEST].array.flat[0])
        types = _TYPES | dict.fromkeys(PAST, self._cache_type)
        given = [placeholders.array(slot, types.get(index, _FLOAT)) for index, slot in enumerate(inputs)]
        padded: list[Any] = [*given, *[None] * (INPUTS - len(given))]
        query, key, value, past_key, past_value, last_positions, _, *more = padded[:INPUTS]
        if query is None or not query.shape[1] or not longest or not _are_last_positions(last_positions, len(query)):
            return None
        state = _State(past_key, past_value, placeholders.own((len(query), 3), np.dtype(np.int64)), longest, longest)
        state.cache_type = self._cache_type
        results = zip((*outputs, None, None)[:OUTPUTS], (_FLOAT, self._cache_type, self._cache_type), strict=True)
        state.out, state.keys, state.values = [placeholders.array(slot, dtype) for slot, dtype in results]
        if self._cache_type == FLOAT16 and not self._decodes((query, key, value)):
            return None
        cached = self._cached((query, key, value), state, more[:3], more[3:], are_known=False)
        if cached is None:
            return None
        tasks = NodeTasks(self._checks(query.shape, last_positions, state, cached.rotary), attention=cached)
        bound = BoundTasks(tasks, placeholders, fallback, cache_slots(inputs, outputs, self.in_place))
        self.algorithm = cached.algorithm
        return bound

    def _checks(self, query: tuple[int, ...], last_positions: HostArray, state: _State, rotary: Rotary | None) -> list[TaskCall]:
        """Tasks that make cache positions and look at indices, which tell where these contradict each other."""
        from ort_sdk_cpu.jit.task import TaskCall

        past_rows = 0 if state.past_key is None else state.past_key.shape[2]
        sizes = (query[0], query[1], state.longest, past_rows, int(self._settings.causal))
        checks = [TaskCall(LENGTHS, "cache_positions", CachePositions(0, last_positions, *sizes, state.cache_positions))]
        if rotary is not None and rotary.rows is not None:
            table = IndexCheck(0, rotary.rows, rotary.rows.size, rotary.cos.shape[0])
            checks.append(TaskCall(LENGTHS, "check_indices", table))
        return checks

    def _normalized(
        self,
        query: HostArray,
        key: HostArray | None,
        value: HostArray | None,
        q_norm: HostArray | None,
        k_norm: HostArray | None,
    ) -> tuple[HostArray, HostArray | None, HostArray | None] | None:
        """Query, key and value with normalized heads; None if something does not fit."""
        if self._norms is None:
            return query, key, value
        operands = self._operands(query, key, value)
        if operands is None or any(len(part.shape) != 3 for part in operands):
            return None
        q, k = self._norms(operands[0], q_norm), self._norms(operands[1], k_norm)
        size = operands[0].shape[2] // self._settings.heads
        fits = all(weight is None or weight.shape == (size,) for weight in (q_norm, k_norm))
        return None if q is None or k is None or not fits else (q, k, operands[2])

    def _decodes(self, given: Sequence[HostArray | None]) -> bool:
        """Whether all is attended as the cache is filled."""
        query, key, value = given
        operands = None if query is None else self._operands(query, key, value)
        if operands is None:
            return False
        heads, key_heads = self._settings.heads, self._settings.key_heads
        size = operands[0].shape[2] // heads
        return attends_few(heads // key_heads * operands[0].shape[1], size, size)

    def _operands(self, query: HostArray, key: HostArray | None, value: HostArray | None) -> tuple[HostArray, ...] | None:
        """Queries, keys and values; None if they do not belong together."""
        heads, key_heads = self._settings.heads, self._settings.key_heads
        if query.ndim != 3 or heads % key_heads:
            return None
        if key is None or value is None:
            size, remainder = divmod(query.shape[2], heads + 2 * key_heads)
            first, second = heads * size, (heads + key_heads) * size
            return None if remainder else (query[..., :first], query[..., first:second], query[..., second:])
        size, remainder = divmod(query.shape[2], heads)
        is_alike = key.shape == value.shape == (*query.shape[:2], key_heads * size)
        return (query, key, value) if is_alike and not remainder and has_contiguous_rows(query, key, value) else None

    def _rotary(self, arrays: Sequence[HostArray | None], tokens: tuple[int, ...], size: int, *, are_known: bool) -> Any:
        """How to rotate; None for not at all."""
        cos, sin, rows = arrays
        if not self._settings.do_rotary:
            return None
        if cos is None or sin is None:
            return None if cos is sin else NotImplemented
        return Rotary.of(cos, sin, rows, tokens, size, is_interleaved=self._settings.interleaved, are_known=are_known)

    def _cached(
        self,
        given: Sequence[HostArray | None],
        state: _State,
        rotation: Sequence[HostArray | None],
        added: Sequence[HostArray | None],
        *,
        are_known: bool = True,
    ) -> CachedAttention | None:
        """What is to be computed; None for arrays that tasks do not take.

        Args:
            given: query, key and value.
            state: the cache.
            rotation: cosines, sines and their rows of tokens.
            added: numbers added to scores, and those that take part in their softmaxes.
            are_known: whether the rows are known.
        """
        settings, query = self._settings, given[0]
        operands = None if query is None else self._operands(query, given[1], given[2])
        if query is None or operands is None or not _is_cache(state, query.shape[0], settings.key_heads, operands):
            return None
        (batch, length, width), (bias, sinks) = operands[0].shape, added
        size = width // settings.heads
        rotary = self._rotary(rotation, (batch, length), size, are_known=are_known)
        if settings.smooth and sinks is None:
            sinks = np.zeros(settings.heads, np.float32)
        scores = (batch, settings.heads, length, state.max_keys)
        are_sinks = sinks is None or (sinks.shape == (settings.heads,) and has_contiguous_rows(sinks))
        if rotary is NotImplemented or not _is_bias(bias, scores) or not are_sinks:
            return None
        cache, empty = (batch, settings.key_heads, state.capacity, size), self._results.empty
        return CachedAttention(
            heads=settings.heads,
            key_heads=settings.key_heads,
            scale=settings.scale or 1 / math.sqrt(size),
            q=operands[0],
            keys=self._new_cache(cache, state) if state.keys is None else state.keys,
            values=self._new_cache(cache, state) if state.values is None else state.values,
            out=empty((batch, length, width)) if state.out is None else state.out,
            cache_positions=state.cache_positions,
            max_keys=state.max_keys,
            k=operands[1],
            v=operands[2],
            past_key=state.past_key,
            past_value=state.past_value,
            mask=bias,
            rotary=rotary,
            sinks=sinks,
            left=settings.window - 1 if settings.window >= 0 else -1,
            right=0 if settings.causal else -1,
            softcap=settings.softcap,
        )

    def _new_cache(self, shape: tuple[int, ...], state: _State) -> HostArray:
        """Memory of a cache; the size of a head of float16 is even."""
        if state.cache_type == FLOAT16:
            return self._results.empty((*shape[:3], shape[3] // 2)).view(FLOAT16)
        return self._results.empty(shape)


@dataclass(slots=True)
class _State:
    """The cache of a call."""

    past_key: HostArray | None
    past_value: HostArray | None
    cache_positions: HostArray
    """As ``CachedAttention`` takes them."""
    max_keys: int
    longest: int
    """Tokens that a sequence may have."""
    keys: HostArray | None = None
    """Where the present goes; None for new memory, like the next."""
    values: HostArray | None = None
    out: HostArray | None = None
    """Where the result goes."""
    cache_type: np.dtype[Any] = _FLOAT
    """Of past and present."""

    @property
    def capacity(self) -> int:
        """Rows of the present."""
        return max(0 if self.past_key is None else self.past_key.shape[2], self.longest)


class _WidenedCache:
    """A cache of float16 that many queries attend as one of float32.

    Args:
        state: of the call; its cache is of float32 from now on.
        shape: of the present (batch, heads, rows, size).
        new: tokens of the call.
    """

    def __init__(self, state: _State, shape: tuple[int, int, int, int], new: int) -> None:
        self._past, self._targets = (state.past_key, state.past_value), (state.keys, state.values)
        self._shape, self._starts, self._new = shape, state.cache_positions[:, 0].tolist(), new
        self._wide = [self._widened(past, state.longest) for past in self._past]
        state.past_key, state.past_value = state.keys, state.values = self._wide
        state.cache_type = _FLOAT

    @classmethod
    def of(cls, state: _State, given: Sequence[HostArray | None], settings: GroupSettings) -> _WidenedCache | None:
        """The same for a query, key and value that are split; None if they do not fit the cache."""
        query, key, _ = given
        if query is None or query.ndim != 3:
            return None
        heads = settings.heads if key is not None else settings.heads + 2 * settings.key_heads
        batch, new, size = query.shape[0], query.shape[1], query.shape[2] // heads
        if not _is_cache_of(state, batch, settings.key_heads, size) or (state.past_key is None) is not (state.past_value is None):
            return None
        return cls(state, (batch, settings.key_heads, state.capacity, size), new)

    def results(self) -> tuple[HostArray, HostArray]:
        """Keys and values, new ones rounded after those of the past."""
        keys, values = map(self._narrowed, self._past, self._targets, self._wide)
        return keys, values

    def _widened(self, past: HostArray | None, rows: int) -> HostArray:
        batch, heads, _, size = self._shape
        wide = np.zeros((batch, heads, rows, size), _FLOAT)
        if past is not None:
            for index, start in enumerate(self._starts):
                wide[index, :, :start] = past[index, :, :start]
        return wide

    def _narrowed(self, past: HostArray | None, target: HostArray | None, wide: HostArray) -> HostArray:
        if target is None:
            target = np.zeros(self._shape, FLOAT16)
            if past is not None:
                target[:, :, : past.shape[2]] = past
        with np.errstate(over="ignore"):
            for index, start in enumerate(self._starts):
                target[index, :, start : start + self._new] = wide[index, :, start : start + self._new]
        return target


def _are_last_positions(given: HostArray | None, batch: int) -> bool:
    """Whether an array has a last position for each sequence, as a task reads them."""
    return given is not None and given.size == batch and given.flags.c_contiguous


def _is_cache_of(state: _State, batch: int, heads: int, size: int) -> bool:
    """Whether past keys and values, if there are any, are of these sizes."""
    pasts = [past for past in (state.past_key, state.past_value) if past is not None]
    return all(past.dtype == state.cache_type and past.shape == (batch, heads, pasts[0].shape[2], size) for past in pasts)


def _is_cache(state: _State, batch: int, heads: int, operands: Sequence[HostArray]) -> bool:
    past_key, past_value = state.past_key, state.past_value
    if past_key is None or past_value is None:
        return past_key is past_value
    size = operands[1].shape[2] // heads
    if past_key.dtype != state.cache_type or past_value.dtype != state.cache_type:
        return False
    is_shaped = past_key.ndim == 4 and past_key.shape == past_value.shape == (batch, heads, past_key.shape[2], size)
    return is_shaped and past_key.flags.c_contiguous and past_value.flags.c_contiguous


def cache_positions_of(
    seqlens_k: HostArray, longest: int, tokens: tuple[int, ...], past_rows: int, is_causal: bool
) -> tuple[tuple[int, int, int], ...] | None:
    """Row of the first new key, position of the first query, and keys, of each sample; None if they contradict each other."""
    found, (batch, new) = [], tokens
    for last in seqlens_k.ravel().tolist():
        past = 0 if new == longest else last + 1 - new
        if not 0 <= past <= min(past_rows, longest - new) or last >= longest:
            return None
        found.append((past, past, longest if is_causal else last + 1))
    return tuple(found) if len(found) == batch and new else None


@functools.lru_cache(maxsize=32)
def cache_positions_array(cache_positions: tuple[tuple[int, int, int], ...]) -> HostArray:
    """``CachedAttention.cache_positions``, one for the layers of a model, which have the same in a run; read-only."""
    made = np.array(cache_positions, np.int64)
    made.flags.writeable = False
    return made


def _is_bias(bias: HostArray | None, scores: tuple[int, ...]) -> bool:
    return bias is None or is_score_bias(bias.shape, scores)
