"""Attention over a key-value cache by compiled tasks: the cache is filled, and its keys attended, in one or two calls."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, NodeArg, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu import libraries
from ort_sdk_cpu.addresses import address_of
from ort_sdk_cpu.contention import is_team_awake

from .attention_task import KINDS, AttentionShape, places
from .scratch import shared_scratch
from .task_writer import threads_for

if TYPE_CHECKING:
    from ort_sdk_cpu.machine_code import TaskFunction

__all__ = ["MOST_FEW", "CachedAttention", "Rotary", "common_counts", "is_readable", "is_spread", "rotated", "takes"]

FLOAT = np.dtype(np.float32)
FEW_KINDS = "q" * 64 + "ffq"
MOST_FEW = 16
"""Queries of a head of keys that are attended at once."""
VECTOR = 16
BLOCK, SPARE_BYTES = 64, 192
"""Keys at a time, as in ``compiled.cached_attention``; bytes of a part's working memory that do not depend on sizes."""
BYTES_PER_THREAD, BYTES_TO_WAKE = 1 << 18, 3 << 20
"""Bytes read or written that take longer than telling a thread that looks for work, or waking one that sleeps."""

ROTATION_WORK = 2
"""Elements of a few instructions each that one that is rotated is worth."""

NOTHING = (0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotation of queries and keys by their positions."""

    cos: HostArray
    """(rows, pairs); rows without gaps."""
    sin: HostArray
    is_interleaved: bool
    rows: HostArray | None = None
    """Row of each token, int64 (batch, tokens); its position without it."""

    @classmethod
    def of(
        cls,
        cos: HostArray,
        sin: HostArray,
        rows: HostArray | None,
        tokens: tuple[int, ...],
        size: int,
        *,
        is_interleaved: bool,
    ) -> Any:
        """Rotation of heads of a size, of (batch, tokens); ``NotImplemented`` if the arrays do not fit."""
        is_shaped = cos.ndim == 2 and cos.shape == sin.shape and 0 < 2 * cos.shape[1] <= size and cos.shape[0]
        if not is_shaped or not is_readable(cos, sin) or cos.strides != sin.strides:
            return NotImplemented
        if rows is not None:
            is_inside = rows.shape == tokens and rows.dtype == np.int64 and rows.min() >= 0 and rows.max() < cos.shape[0]
            if not is_inside:
                return NotImplemented
            rows = np.ascontiguousarray(rows)
        return cls(cos, sin, is_interleaved, rows)

    @property
    def arguments(self) -> tuple[int, ...]:
        """As tasks take them."""
        cos, rows = self.cos, self.rows
        numbers = (address_of(cos), address_of(self.sin), cos.strides[0], cos.shape[1], int(self.is_interleaved))
        return (*numbers, 0 if rows is None else address_of(rows), cos.shape[0])


UNTURNED = (0, 0, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class CachedAttention:
    """softmax(scale * q k' + mask) v for float32, after new keys and values were put into their cache. Arrays are not checked."""

    heads: int
    key_heads: int
    scale: float
    q: HostArray
    """(batch, tokens, heads * size), or (batch, heads, tokens, size)."""
    keys: HostArray
    """What is attended, (batch, key heads, rows, size): the cache to fill, or (batch, rows, key heads * size) without one."""
    values: HostArray
    out: HostArray
    """As ``q``, with the values' size."""
    counts: HostArray
    """int64 (batch, 3): row of the first new key, position of the first query, keys."""
    most_keys: int
    """Largest of the last."""
    k: HostArray | None = None
    """New keys as ``q`` has queries; None if there is no cache to fill."""
    v: HostArray | None = None
    past_key: HostArray | None = None
    """(batch, key heads, past rows, size); rows without gaps."""
    past_value: HostArray | None = None
    mask: HostArray | None = None
    """Numbers added to the scores, (batch, heads, tokens, keys) or what broadcasts to it."""
    bias: HostArray | None = None
    """Of queries, keys and values, one behind the other."""
    rotary: Rotary | None = None
    sinks: HostArray | None = None
    """(heads,) numbers that take part in the softmaxes."""
    left: int = -1
    """Positions a query sees before its own; -1 for all."""
    right: int = -1
    softcap: float = 0.0
    is_in_place: bool = False
    """Whether the cache is in the past's memory."""

    def run(self) -> None:
        """Compute."""
        is_four = self.q.ndim == 4
        batch, length = self.q.shape[0], self.q.shape[2 if is_four else 1]
        size = self.q.shape[3] if is_four else self.q.shape[2] // self.heads
        value_size = self.values.shape[3] if self.values.ndim == 4 else self.values.shape[2] // self.key_heads
        group = self.heads // self.key_heads
        sizes = (batch, self.key_heads, group, length, size, value_size, self.left, self.right)
        is_few = group * length <= MOST_FEW and not size % VECTOR and not value_size % VECTOR
        if is_few:
            self._attend_few(self._arguments(sizes), sizes, self._threads(sizes))
        else:
            self._attend_many(self._arguments(sizes), sizes, self._threads(sizes))

    @property
    def _new(self) -> int:
        """New keys of a head."""
        return 0 if self.k is None else int(self.k.shape[2 if self.k.ndim == 4 else 1])

    def _threads(self, sizes: tuple[int, ...]) -> int:
        """How many are worth their waking for what is read and written of the cache."""
        batch, key_heads, _, _, size, value_size, *_ = sizes
        passes = 1 if self.k is None or self.is_in_place else 3
        nbytes = passes * batch * key_heads * self.most_keys * (size + value_size) * FLOAT.itemsize
        wanted = min(libraries.thread_count(), nbytes // BYTES_PER_THREAD)
        return wanted if wanted > 1 and (nbytes > BYTES_TO_WAKE * wanted or is_team_awake()) else 1

    def _attend_few(self, arguments: tuple[int, ...], sizes: tuple[int, ...], threads: int) -> None:
        """Few queries: a thread fills the cache of a head and attends it."""
        batch, key_heads, group, length, size, value_size, *_ = sizes
        rows, items, fills = group * length, batch * key_heads, self.k is not None
        pieces = 1 if items >= threads else min(rows, -(-threads // items))
        if pieces > 1 and fills:
            _task("extend")(min(items, threads), *arguments, 1, 0, 0, 0, 0, self.scale, self.softcap, self._new)
            fills = False
        part_bytes = SPARE_BYTES + -(-rows // pieces) * (size * 4 + BLOCK * 4 + value_size * 4 + 8) & -64
        scratch, threads = shared_scratch(), min(threads, items * pieces)
        work = scratch.address("attention", threads * part_bytes)
        _task("attend_few")(threads, *arguments, pieces, int(fills), work, part_bytes, 0, self.scale, self.softcap, self._new)

    def _arguments(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Those that both tasks take."""
        heads, key_heads, past_key, past_value = self.heads, self.key_heads, self.past_key, self.past_value
        new = [NOTHING if part is None else places(part, key_heads) for part in (self.k, self.v)]
        past, past_rows = (0, 0, 0, 0, 0, 0), 0
        if past_key is not None and past_value is not None:
            past = (*places(past_key, key_heads)[:3], *places(past_value, key_heads)[:3])
            past_rows = past_key.shape[2]
        keys, values = self.keys, self.values
        capacity = keys.shape[2] if keys.ndim == 4 else keys.shape[1]
        return (
            *places(self.q, heads),
            *new[0],
            *new[1],
            *past,
            *places(keys, key_heads),
            *places(values, key_heads),
            *places(self.out, heads),
            *self._mask_places((sizes[0], heads, sizes[3], self.most_keys)),
            *self._biases(sizes[4]),
            *(UNTURNED if self.rotary is None else self.rotary.arguments),
            address_of(self.counts),
            0 if self.sinks is None else address_of(self.sinks),
            *sizes,
            past_rows,
            capacity,
            int(self.k is not None),
            int(self.is_in_place),
        )

    def _mask_places(self, scores: tuple[int, ...]) -> tuple[int, ...]:
        mask = self.mask
        if mask is None:
            return (0, 0, 0, 0, 0)
        return (address_of(mask), *np.broadcast_to(mask, scores).strides)

    def _biases(self, size: int) -> tuple[int, int, int]:
        if self.bias is None:
            return 0, 0, 0
        start = address_of(self.bias)
        return start, start + self.heads * size * 4, start + (self.heads + self.key_heads) * size * 4

    def _attend_many(self, arguments: tuple[int, ...], sizes: tuple[int, ...], threads: int) -> None:
        """Many queries: all keys are in the cache first."""
        batch, key_heads, group, length, size, value_size, *_ = sizes
        shape = AttentionShape(batch, self.heads, length, self.most_keys, size, value_size, self.scale)
        scratch, q, bias = shared_scratch(), arguments[:4], arguments[35]
        if self.rotary is not None or self.k is not None:
            turned = 0
            if self.rotary is not None:
                turned = scratch.address("queries", self.heads * batch * length * size * 4)
                q, bias = (turned, self.heads * length * size * 4, length * size * 4, size * 4), 0
            _task("extend")(min(batch * key_heads, threads), *arguments, 1, 0, 0, 0, turned, self.scale, self.softcap, self._new)
        threads = shape.threads(libraries.thread_count())
        work = scratch.address("attention", threads * shape.part_bytes)
        value_bias = 0 if self.k is not None else arguments[37]
        limits = (group, arguments[45], self.left, self.right, arguments[46], self.softcap)
        operands = (*q, *arguments[18:26], *arguments[26:35], bias, value_bias)
        _attention()(threads, *operands, *shape.arguments, batch, work, shape.part_bytes, *limits)


def is_spread(mask: HostArray | None, scores: tuple[int, ...]) -> bool:
    """Whether a mask broadcasts to the scores."""
    if mask is None:
        return True
    whole = scores[len(scores) - mask.ndim :]
    return mask.ndim <= len(scores) and all(own in {1, most} for own, most in zip(mask.shape, whole, strict=True))


@functools.lru_cache(maxsize=32)
def common_counts(batch: int, start: int, position: int, keys: int) -> HostArray:
    """``CachedAttention.counts`` that are the same for all samples."""
    return np.array([(start, position, keys)] * batch, np.int64)


def rotated(x: tuple[int, ...], out: tuple[int, ...], rotary: Rotary, sizes: tuple[int, int, int, int]) -> None:
    """Rotate heads.

    Args:
        x: address, and bytes from one to the next of batch, heads and rows.
        out: where they go, the same.
        rotary: how.
        sizes: batch, tokens, heads and elements of a head.
    """
    batch, length, heads, size = sizes
    threads = threads_for(ROTATION_WORK * batch * length * heads * size)
    rest = (0, 0, batch, heads, 1, length, size, size, *[0] * 11)
    _task("rotate")(threads, *x, *[0] * 22, *out, *[0] * 8, *rotary.arguments, *rest, 1.0, 0.0, 0)


def takes(arguments: Sequence[NodeArg | None]) -> bool:
    """Whether the tasks can run here, on these inputs and outputs: all are of float32."""
    are_floats = all(argument is None or argument.element_type is TensorElementType.FLOAT for argument in arguments)
    return are_floats and libraries.numba().is_usable


def is_readable(*arrays: HostArray | None) -> bool:
    """Whether rows of arrays have no gaps."""
    return all(array is None or array.strides[-1] == array.itemsize for array in arrays)


@functools.cache
def _task(name: str) -> TaskFunction:
    from ort_sdk_cpu.machine_code import task_function

    return task_function("cached_attention", name, FEW_KINDS)


@functools.cache
def _attention() -> TaskFunction:
    from ort_sdk_cpu.machine_code import task_function

    return task_function("attention", "attention", KINDS)
