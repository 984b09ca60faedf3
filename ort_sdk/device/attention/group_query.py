"""GroupQueryAttention over caches on a device: lengths are read there, so that a captured call serves every token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ort_sdk.api import Array, Compute, HostArray, KernelInfo, TensorElementType, may_overwrite
from ort_sdk.device import arithmetic
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.element_types import HALF_TYPES
from ort_sdk.opset.contrib.attention_core import check_columns, merge_heads
from ort_sdk.opset.contrib.query_groups import GroupSettings, Projection
from ort_sdk.opset.llm.rotary import rotate

from .attend import attend_cache, stored
from .cache import append_to_caches, grow_caches
from .extras import CacheLengths, Extras, Rotation

__all__ = ["IN_PLACE", "group_query_attention"]

TOTAL = 6
"""The input that says how long the longest sequence is, on the host."""
IN_PLACE = ((3, 1), (4, 2))
"""Past keys and values, and the outputs that may be in their memory."""
BIAS = 10
"""The input that is added to the scores, a column for each key."""
_FLOAT, _INT32 = TensorElementType.FLOAT, TensorElementType.INT32
LOWEST = -3.4028234663852886e38
"""What hidden keys' scores get, as in the shared operator."""


def group_query_attention(info: KernelInfo, namespace: Any, shared: Compute) -> Compute | None:
    """The node's function; ``seqlens_k`` is an array of the device."""
    types = {info.input_element_type(index) for index in (0, 1, 2, 3, 4) if info.has_input(index)}
    is_plain = all(info.attribute(name, "NONE") == "NONE" for name in ("k_quant_type", "v_quant_type"))
    drops = bool(info.attribute("sliding_window_cache", 0))
    if not types <= HALF_TYPES | {_FLOAT} or not is_plain or drops or len(info.outputs) > 3:
        return None
    return _GroupQueryAttention(info, namespace, shared)


class _GroupQueryAttention:
    bounded_input = TOTAL

    def __init__(self, info: KernelInfo, namespace: Any, shared: Compute) -> None:
        self._info, self._xp, self._shared = info, namespace, shared
        self._settings, self._outputs = GroupSettings.of(info), len(info.outputs)
        self._project = Projection(namespace, self._settings)
        own = info.input_element_type(0) or _FLOAT
        self._output_type = info.output_element_type(0) or own
        self._cache_type = info.input_element_type(3) or (info.output_element_type(1) if self._outputs > 1 else None) or own

    def bounds(self, shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, int] | None:
        """How long sequences with a past may be for their cache to have room; see ``OpKernel.bounds``."""
        query, past = shapes[0], shapes[3]
        has_bias = len(shapes) > BIAS and shapes[BIAS] is not None
        if query is None or past is None or has_bias or 0 in query or query[1] >= past[2]:
            return None
        return query[1] + 1, past[2]

    def __call__(
        self,
        query: DeviceArray,
        key: DeviceArray | None,
        value: DeviceArray | None,
        past_key: DeviceArray | None,
        past_value: DeviceArray | None,
        seqlens_k: DeviceArray,
        total_sequence_length: HostArray | None,
        cos_cache: DeviceArray | None = None,
        sin_cache: DeviceArray | None = None,
        position_ids: DeviceArray | None = None,
        attention_bias: DeviceArray | None = None,
        head_sink: DeviceArray | None = None,
        k_scale: DeviceArray | None = None,
        v_scale: DeviceArray | None = None,
        q_norm: DeviceArray | None = None,
        k_norm: DeviceArray | None = None,
    ) -> Any:
        inputs = (query, key, value, past_key, past_value, seqlens_k, total_sequence_length, cos_cache, sin_cache, position_ids)
        given = (*inputs, attention_bias, head_sink, k_scale, v_scale, q_norm, k_norm)
        rows = _rows(total_sequence_length, past_key)
        if not query.size or rows < query.shape[1] or seqlens_k.size != query.shape[0]:
            return self._shared(*given)
        check_columns(self._info, attention_bias, rows)
        q, k, v = self._split(query, key, value, q_norm, k_norm)
        rotation = self._rotation(cos_cache, sin_cache, q.shape[3])
        if rotation is not None and position_ids is not None:
            angles = [self._xp.expand_dims(self._xp.gather(each, position_ids, 0), axis=1) for each in (cos_cache, sin_cache)]
            wide = [self._xp.astype(each, _FLOAT) for each in (q, k, *angles)]
            q, k = (rotate(self._xp, each, *wide[2:], interleaved=self._settings.interleaved) for each in wide[:2])
            rotation = None
        lengths = self._lengths(seqlens_k, q.shape[2], rows)
        keys, values = self._extended((past_key, past_value), (k, v), lengths, rows, rotation)
        biases = [*self._hidden(q, lengths, rows), *([] if attention_bias is None else [attention_bias])]
        sink = 0.0 if self._settings.smooth and head_sink is None else None if head_sink is None else head_sink.dense()
        is_limited = not (lengths.is_first and self._settings.causal)
        extras = Extras(lengths, is_limited, rotation, sink, self._settings.softcap)
        scale = self._settings.scale or 1 / math.sqrt(q.shape[3])
        mixed = attend_cache(q, keys[:, :, :rows, :], values[:, :, :rows, :], biases, scale, extras)
        if mixed is None:
            return self._shared(*given)
        output = self._xp.astype(merge_heads(self._xp, mixed), self._output_type)
        return output if self._outputs < 2 else (output, keys, values)[: self._outputs]

    def _split(
        self,
        query: DeviceArray,
        key: DeviceArray | None,
        value: DeviceArray | None,
        q_norm: DeviceArray | None,
        k_norm: DeviceArray | None,
    ) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
        """Heads of the three, in float where they are normalized."""
        if q_norm is None and k_norm is None:
            return self._project.split(query, key, value)
        wide = [None if each is None else self._xp.astype(each, _FLOAT) for each in (query, key, value, q_norm, k_norm)]
        return self._project.split(*wide)

    def _rotation(self, cos_cache: DeviceArray | None, sin_cache: DeviceArray | None, size: int) -> Rotation | None:
        if not self._settings.do_rotary or cos_cache is None or sin_cache is None or 0 in cos_cache.shape:
            return None
        cosines, sines = (self._xp.astype(each, cos_cache.element_type).dense() for each in (cos_cache, sin_cache))
        return Rotation(cosines, sines, self._settings.interleaved)

    def _lengths(self, seqlens_k: DeviceArray, new: int, rows: int) -> CacheLengths:
        return CacheLengths(arithmetic.cast(seqlens_k, _INT32).dense(), new, is_first=new == rows)

    def _extended(
        self,
        past: tuple[DeviceArray | None, DeviceArray | None],
        new: tuple[DeviceArray, DeviceArray],
        lengths: CacheLengths,
        rows: int,
        rotation: Rotation | None,
    ) -> tuple[DeviceArray, DeviceArray]:
        """Past and new keys and values: in the past memory where the caller of the run wants that."""
        context, own = self._xp.context, [each.node for each in new]
        k, v = stored(context, own[0]), stored(context, own[1])
        past_key, past_value = past
        capacity = max(rows, 0 if past_key is None else past_key.shape[2])
        if past_key is not None and past_value is not None and past_key.shape[2] == capacity:
            given: tuple[Array, ...] = (past_key, past_value)
            if all(map(may_overwrite, given)):
                append_to_caches(context, (k, v), (past_key.dense(), past_value.dense()), lengths, rows, rotation)
                return past_key, past_value
        pasts = None if past_key is None or past_value is None else (past_key.dense(), past_value.dense())
        shape = (*k.shape[:2], capacity, k.shape[3])
        presents = context.new(shape, self._cache_type), context.new(shape, self._cache_type)
        grow_caches(context, (k, v), pasts, presents, lengths, rows, rotation)
        return DeviceArray(context, presents[0]), DeviceArray(context, presents[1])

    def _hidden(self, q: DeviceArray, lengths: CacheLengths, rows: int) -> list[DeviceArray]:
        """What is added to the scores of keys that a query does not see, but for those behind its sequence."""
        settings, xp, new = self._settings, self._xp, q.shape[2]
        looks_ahead = settings.causal and new > 1
        if not looks_ahead and settings.window < 0:
            return []
        keys = xp.arange(rows, dtype=xp.int32)
        queries = xp.reshape(xp.arange(new, dtype=xp.int32), (1, 1, new, 1))
        if not lengths.is_first:
            queries = queries + xp.reshape(q.made(lengths.last), (-1, 1, 1, 1)) + (1 - new)
        hidden = keys > queries if looks_ahead else None
        if settings.window >= 0:
            before = keys <= queries - settings.window
            hidden = before if hidden is None else xp.logical_or(hidden, before)
        return [xp.where(hidden, xp.asarray(LOWEST, dtype=xp.float32), xp.asarray(0.0, dtype=xp.float32))]


def _rows(total_sequence_length: HostArray | None, past_key: DeviceArray | None) -> int:
    """Rows of the caches that may be used: all of the past's for any number within the bounds."""
    if total_sequence_length is not None:
        return int(total_sequence_length.reshape(-1)[0])
    if past_key is None:
        raise TypeError("without a past, the number of rows is total_sequence_length, which is not given")
    return past_key.shape[2]
