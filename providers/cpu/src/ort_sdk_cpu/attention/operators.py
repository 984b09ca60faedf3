"""Attention of ONNX, and MultiHeadAttention with a key-value cache, in float32 by compiled tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, Slot, TensorElementType
from ort_sdk.api.data_classes import dataclass, field
from ort_sdk.opset.contrib.attention import MASK_FILTER_VALUE
from ort_sdk.opset.contrib.attention_core import mask_bias
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.kernel.eager import direct_call
from ort_sdk_cpu.memory.result_pool import ResultAllocator

from .decode import (
    FLOAT16,
    CachedAttention,
    broadcasts_to,
    common_cache_positions,
    has_contiguous_rows,
    reads_float16,
    takes_float32,
)
from .select import attends_few

if TYPE_CHECKING:
    from .decode_bound import NodeTasks, Placeholders

__all__ = [
    "SPLIT_RANK",
    "AttentionOperands",
    "MultiHead",
    "Results",
    "bias_of_mask",
    "is_score_bias",
    "multi_head",
    "multi_head_over_cache",
]

FLOAT, INT = np.dtype(np.float32), np.dtype(np.int32)
OUTPUTS = 3
"""Outputs: the result, and a cache's keys and values."""
SPLIT_RANK = 4
"""Rank of keys (batch, heads, keys, size)."""
MASK, VALID_KEYS = 3, 6
"""Inputs of ONNX's operator."""
PAST, PRESENT = (4, 5), (1, 2)
"""Inputs and outputs of ONNX's operator that are its cache."""
BIAS, KEY_MASK, ADDED, PAST_KEY, PAST_VALUE = 3, 4, 5, 6, 7
"""Inputs of MultiHeadAttention, of which there are more."""
INTEGER_INPUTS = {KEY_MASK, 8, 9}


@dataclass(frozen=True, slots=True)
class Results:
    """Where results go."""

    memory: ResultAllocator
    """For those that have no array."""
    out: HostArray | None = None
    keys: HostArray | None = None
    values: HostArray | None = None
    cache_type: np.dtype[Any] = field(default=FLOAT, kw_only=True)
    """Of present keys and values; for float16 their sizes are even."""

    def keys_of(self, shape: tuple[int, ...]) -> HostArray:
        """The present keys' array."""
        return self._new(shape) if self.keys is None else self.keys

    def values_of(self, shape: tuple[int, ...]) -> HostArray:
        """The present values' array."""
        return self._new(shape) if self.values is None else self.values

    def _new(self, shape: tuple[int, ...]) -> HostArray:
        if self.cache_type == FLOAT16:
            return self.memory.empty((*shape[:-1], shape[-1] // 2)).view(FLOAT16)
        return self.memory.empty(shape)


@dataclass(frozen=True, slots=True)
class AttentionOperands:
    """Queries, keys and values of a call, of rank 3 or 4, and their heads."""

    q: HostArray
    k: HostArray
    v: HostArray
    heads: int
    key_heads: int
    past_key: HostArray | None
    past_value: HostArray | None

    @property
    def batch(self) -> int:
        """Samples."""
        return int(self.q.shape[0])

    @property
    def length(self) -> int:
        """Queries of a head."""
        return int(self.q.shape[2 if self.q.ndim == 4 else 1])

    @property
    def past(self) -> int:
        """Keys of the past."""
        return 0 if self.past_key is None else int(self.past_key.shape[2])

    @property
    def keys(self) -> int:
        """Keys of a head, with those of the past."""
        return self.past + int(self.k.shape[2 if self.k.ndim == 4 else 1])

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """Shape of the scores."""
        return self.batch, self.heads, self.length, self.keys

    def fit(self) -> bool:
        """Whether the arrays fit together, and tasks can read them."""
        shapes = [
            _by_head(part, heads) for part, heads in ((self.q, self.heads), (self.k, self.key_heads), (self.v, self.key_heads))
        ]
        if any(shape is None for shape in shapes) or not self.key_heads or self.heads % self.key_heads:
            return False
        q, k, v = shapes
        is_alike = q[0] == k[0] and k[:3] == v[:3] and q[3] == k[3] and q[1] == self.heads and k[1] == self.key_heads  # type: ignore[index]
        return is_alike and has_contiguous_rows(self.q, self.k, self.v) and self._fits_past(k, v)  # type: ignore[arg-type]

    def _fits_past(self, k: tuple[int, ...], v: tuple[int, ...]) -> bool:
        if self.past_key is None or self.past_value is None:
            return self.past_key is self.past_value
        wanted = (*k[:2], self.past)
        is_shaped = self.past_key.shape == (*wanted, k[3]) and self.past_value.shape == (*wanted, v[3])
        return is_shaped and self.past_key.flags.c_contiguous and self.past_value.flags.c_contiguous

    def attention(self, results: Results, *, has_cache: bool, scale: float | None) -> CachedAttention:
        """What is to be computed, without limits and masks."""
        batch, _, length, keys = self.scores
        is_four, past = self.q.ndim == 4, self.past
        size = self.q.shape[3] if is_four else self.q.shape[2] // self.heads
        value_size = self.v.shape[3] if self.v.ndim == 4 else self.v.shape[2] // self.key_heads
        cache, out = (batch, self.key_heads, keys), results.out
        if out is None:
            shape = (batch, self.heads, length, value_size) if is_four else (batch, length, self.heads * value_size)
            out = results.memory.empty(shape)
        return CachedAttention(
            heads=self.heads,
            key_heads=self.key_heads,
            scale=1 / math.sqrt(size) if scale is None else scale,
            q=self.q,
            keys=results.keys_of((*cache, size)) if has_cache else self.k,
            values=results.values_of((*cache, value_size)) if has_cache else self.v,
            out=out,
            cache_positions=common_cache_positions(batch, past, past, keys),
            max_keys=keys,
            k=self.k if has_cache else None,
            v=self.v if has_cache else None,
            past_key=self.past_key,
            past_value=self.past_value,
        )


def _by_head(array: HostArray, heads: int) -> tuple[int, ...] | None:
    """Shape (batch, heads, rows, size); None if there is none."""
    if array.ndim == 4:
        return tuple(array.shape)
    if array.ndim != 3 or not heads or array.shape[2] % heads:
        return None
    return array.shape[0], heads, array.shape[1], array.shape[2] // heads


@direct_call("Attention")
def attention(info: KernelInfo) -> Callable[..., Any] | None:
    """Any node of float32, with a cache of float32 or float16, that asks for no scores."""
    caches = [*(info.inputs[index] for index in PAST if index < len(info.inputs)), *info.outputs[1:OUTPUTS]]
    types = {argument.element_type for argument in caches if argument is not None}
    floats = [argument for index, argument in enumerate(info.inputs) if index not in {MASK, VALID_KEYS, *PAST}]
    is_half = types == {TensorElementType.FLOAT16} and reads_float16()
    if (
        info.wants_output(OUTPUTS)
        or not takes_float32((*floats, *info.outputs[:1]))
        or not (is_half or types <= {TensorElementType.FLOAT})
    ):
        return None
    return _Attention(info, FLOAT16 if is_half else FLOAT).call


class _Attention:
    """A node of ONNX's operator."""

    def __init__(self, info: KernelInfo, cache_type: np.dtype[Any] = FLOAT) -> None:
        self._cache_type = cache_type
        self._heads, self._key_heads = int(info.attribute("q_num_heads", 0)), int(info.attribute("kv_num_heads", 0))
        scale = info.attribute("scale", None)
        self._scale = None if scale is None else float(scale)
        self._softcap, self._left = float(info.attribute("softcap", 0.0)), int(info.attribute("left_window_size", -1))
        self._right = 0 if info.attribute("is_causal", 0) else int(info.attribute("right_window_size", -1))
        self._has_present, self._results = info.wants_output(1) or info.wants_output(2), ResultAllocator()
        is_of_numbers = info.input_element_type(MASK) is not TensorElementType.BOOL
        self._mask_type = FLOAT if is_of_numbers else np.dtype(np.bool_)
        self.algorithm: str | None = None
        """The one used last."""

    def call(
        self,
        q: HostArray,
        k: HostArray,
        v: HostArray,
        mask: HostArray | None = None,
        past_key: HostArray | None = None,
        past_value: HostArray | None = None,
        valid_keys: HostArray | None = None,
    ) -> Any:
        """The node's outputs."""
        operands = self._operands(q, k, v, past_key, past_value)
        if self._cache_type == FLOAT or self._decodes(operands):
            return self._computed(operands, mask, valid_keys, self._cache_type)
        wide = [None if past is None else past.astype(FLOAT) for past in (past_key, past_value)]
        results = self._computed(self._operands(q, k, v, *wide), mask, valid_keys, FLOAT)
        if results is NotImplemented or not self._has_present:
            return results
        out, keys, values, _ = results
        with np.errstate(over="ignore"):
            return out, keys.astype(FLOAT16), values.astype(FLOAT16), None

    def _decodes(self, operands: AttentionOperands) -> bool:
        """Whether all is attended as the cache is filled."""
        if not operands.fit():
            return False
        sizes = [
            x.shape[3] if x.ndim == 4 else x.shape[2] // heads
            for x, heads in ((operands.q, operands.heads), (operands.v, operands.key_heads))
        ]
        return attends_few(operands.heads // operands.key_heads * operands.length, *sizes)

    def _computed(
        self, operands: AttentionOperands, mask: HostArray | None, valid_keys: HostArray | None, cache_type: np.dtype[Any]
    ) -> Any:
        """The node's outputs."""
        cached = self._cached(operands, mask, Results(self._results, cache_type=cache_type))
        if cached is None:
            return NotImplemented
        if valid_keys is not None:
            if valid_keys.shape != (operands.batch,) or valid_keys.min() < 0 or valid_keys.max() > operands.keys:
                return NotImplemented
            first = [operands.past or valid - operands.length for valid in valid_keys.tolist()]
            rows = [(operands.past, position, valid) for position, valid in zip(first, valid_keys.tolist(), strict=True)]
            cached.cache_positions = np.array(rows, np.int64)
        if mask is not None and mask.dtype == np.bool_:
            cached.mask = np.where(mask, np.float32(0), np.float32(-np.inf))
        cached.run()
        self.algorithm = cached.algorithm
        return (cached.out, cached.keys, cached.values, None) if self._has_present else cached.out

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot], fallback: Callable[[], Any]) -> Any:
        """A call of tasks on slots; None for what tasks do not take."""
        from .decode_bound import BoundTasks, NodeTasks, Placeholders

        if any(slot.array is not None or not slot.is_fixed for slot in inputs[VALID_KEYS:]):
            return None
        placeholders, types = Placeholders(), {MASK: self._mask_type} | dict.fromkeys(PAST, self._cache_type)
        given = [placeholders.array(slot, types.get(index, FLOAT)) for index, slot in enumerate(inputs)]
        q, k, v, mask, past_key, past_value = (*given, None, None, None)[:VALID_KEYS]
        if mask is not None and mask.dtype == np.bool_:
            if not inputs[MASK].is_constant:
                return None
            mask = np.where(mask, np.float32(0), np.float32(-np.inf))
        if q is None or k is None or v is None:
            return None
        operands = self._operands(q, k, v, past_key, past_value)
        if self._cache_type == FLOAT16 and not self._decodes(operands):
            return None
        made = [placeholders.array(slot, self._cache_type if index else FLOAT) for index, slot in enumerate(outputs[:OUTPUTS])]
        cached = self._cached(operands, mask, Results(self._results, *made, cache_type=self._cache_type))
        if cached is None:
            return None
        bound = BoundTasks(NodeTasks(attention=cached), placeholders, fallback)
        self.algorithm = cached.algorithm
        return bound

    def _operands(
        self, q: HostArray, k: HostArray, v: HostArray, past_key: HostArray | None, past_value: HostArray | None
    ) -> AttentionOperands:
        heads, key_heads = (x.shape[1] if x.ndim == 4 else own for x, own in ((q, self._heads), (k, self._key_heads)))
        return AttentionOperands(q, k, v, heads, key_heads, past_key, past_value)

    def _cached(self, operands: AttentionOperands, mask: HostArray | None, results: Results) -> CachedAttention | None:
        """What is to be computed; None for arrays that tasks do not take."""
        if (
            not operands.q.ndim == operands.k.ndim == operands.v.ndim
            or not operands.fit()
            or not broadcasts_to(mask, operands.scores)
        ):
            return None
        if not operands.length or not operands.keys:
            return None
        has_cache = self._has_present or operands.past_key is not None
        cached = operands.attention(results, has_cache=has_cache, scale=self._scale)
        cached.left, cached.right, cached.softcap, cached.mask = self._left, self._right, self._softcap, mask
        return cached


_NAMESPACE = NumpyNamespace()


def bias_of_mask(mask: HostArray | None, scores: tuple[int, int, int, int], filter_value: float) -> HostArray | None:
    """The score bias of a mask; None for one that hides nothing, as that of most steps of a decoder."""
    batch, _, length, keys = scores
    if mask is None or (mask.shape == (batch, keys) and (mask > 0).all()):
        return None
    return mask_bias(_NAMESPACE, mask, (batch, length, keys), filter_value, FLOAT)


def is_score_bias(added: tuple[int, ...], scores: tuple[int, ...]) -> bool:
    """Whether a shape of the scores' rank broadcasts to them."""
    return len(added) == len(scores) and all(own in {1, whole} for own, whole in zip(added, scores, strict=True))


def multi_head_over_cache(info: KernelInfo) -> Callable[..., Any] | None:
    """MultiHeadAttention of float32: with a past, with the cache as outputs, or of few queries; None if it asks for scores."""
    made = multi_head(info)
    return None if made is None else made.call


def multi_head(info: KernelInfo) -> MultiHead | None:
    """The same as an object."""
    floats = [argument for index, argument in enumerate(info.inputs) if index not in INTEGER_INPUTS]
    return None if info.wants_output(OUTPUTS) or not takes_float32(floats) else MultiHead(info)


class MultiHead:
    """A node of MultiHeadAttention."""

    def __init__(self, info: KernelInfo) -> None:
        self._heads, self._scale = int(info.attribute("num_heads")), info.attribute("scale", 0.0) or None
        self._filter_value = info.attribute("mask_filter_value", MASK_FILTER_VALUE)
        self._is_causal = bool(info.attribute("unidirectional", 0))
        self._outputs, self._results = len(info.outputs), ResultAllocator()
        self.algorithm: str | None = None
        """The one used last."""

    def call(
        self,
        query: HostArray,
        key: HostArray | None = None,
        value: HostArray | None = None,
        bias: HostArray | None = None,
        mask: HostArray | None = None,
        added: HostArray | None = None,
        past_key: HostArray | None = None,
        past_value: HostArray | None = None,
        *others: Any,
    ) -> Any:
        """The node's outputs."""
        if any(other is not None for other in others):
            return NotImplemented
        given = (query, key, value, bias, added, past_key, past_value)
        cached = self._cached(given, Results(self._results), has_mask=mask is not None)
        if cached is None:
            return NotImplemented
        hidden = bias_of_mask(mask, _scores(cached), self._filter_value)
        if hidden is not None:
            cached.mask = hidden if added is None else added + hidden
        cached.run()
        self.algorithm = cached.algorithm
        return cached.out if self._outputs < 2 else (cached.out, cached.keys, cached.values)[: self._outputs]

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot], fallback: Callable[[], Any]) -> Any:
        """A call of tasks on slots; None for what tasks do not take."""
        from .decode_bound import BoundTasks, NodeTasks, Placeholders

        placeholders, padded = Placeholders(), (*inputs, *[None] * (PAST_VALUE + 1 - len(inputs)))
        if any(slot.array is not None or not slot.is_fixed for slot in inputs[PAST_VALUE + 1 :]):
            return None
        given = [
            placeholders.array(slot, INT if index == KEY_MASK else FLOAT) for index, slot in enumerate(padded[: PAST_VALUE + 1])
        ]
        made, mask = [placeholders.array(slot) for slot in outputs[:OUTPUTS]], given.pop(KEY_MASK)
        cached = self._cached(given, Results(self._results, *made), has_mask=mask is not None)
        if cached is None:
            return None
        tasks, slot = NodeTasks(attention=cached), padded[KEY_MASK]
        if mask is not None and slot is not None:
            found = self._bound_mask(mask, cached, placeholders, tasks, is_known=slot.is_constant)
            if found is NotImplemented:
                return None
            cached.mask = found
        bound = BoundTasks(tasks, placeholders, fallback)
        self.algorithm = cached.algorithm
        return bound

    def _bound_mask(
        self, mask: HostArray, cached: CachedAttention, placeholders: Placeholders, tasks: NodeTasks, *, is_known: bool
    ) -> Any:
        """The score bias with that of a mask; ``NotImplemented`` if no task makes it."""
        from .decode_bound import key_mask_bias

        if is_known:
            hidden = bias_of_mask(mask, _scores(cached), self._filter_value)
            return cached.mask if hidden is None else hidden if cached.mask is None else NotImplemented
        if mask.ndim == 2 and mask.shape[1] == 1:
            return cached.mask
        is_of_keys = mask.shape == (len(cached.q), cached.max_keys) and mask.dtype == INT and mask.flags.c_contiguous
        if not is_of_keys or cached.mask is not None:
            return NotImplemented
        numbers, task = key_mask_bias(mask, self._filter_value, placeholders)
        tasks.before.append(task)
        return numbers

    def _cached(self, given: Sequence[HostArray | None], results: Results, *, has_mask: bool) -> CachedAttention | None:
        """What is to be computed, without its mask; None for arrays that tasks do not take.

        Args:
            given: query, key, value, bias, numbers added to scores, past keys and values.
            results: where they go.
            has_mask: whether there will be a mask.
        """
        query, key, value, bias, added, past_key, past_value = given
        if query is None or key is None or value is None or key.ndim == 5 or query.ndim != 3:
            return None
        if key.ndim == SPLIT_RANK and key.shape != value.shape:
            return None
        operands = AttentionOperands(query, key, value, self._heads, self._heads, past_key, past_value)
        if not operands.fit() or not operands.length or not operands.keys:
            return None
        if added is not None and not is_score_bias(added.shape, operands.scores):
            return None
        if self._is_causal and has_mask and operands.length > 1:
            # Where all keys of a query are hidden, weights follow from how scores are rounded beside the filter value: only the
            # shared set's order of operations gives the same.
            return None
        cached = operands.attention(results, has_cache=self._outputs > 1 or past_key is not None, scale=self._scale)
        if bias is not None and (bias.shape != (query.shape[2] * 2 + cached.out.shape[2],) or not has_contiguous_rows(bias)):
            return None
        cached.mask, cached.bias, cached.has_query_bias_only = added, bias, key.ndim == 4
        if self._is_causal:
            cached.cache_positions, cached.right = (
                common_cache_positions(operands.batch, operands.past, operands.past, operands.keys),
                0,
            )
        return cached


def _scores(cached: CachedAttention) -> tuple[int, int, int, int]:
    """Shape of the scores of queries (batch, tokens, heads * size)."""
    return cached.q.shape[0], cached.heads, cached.q.shape[1], cached.max_keys
