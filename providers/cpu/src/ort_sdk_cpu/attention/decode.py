"""Attention over a key-value cache by compiled tasks: the cache is filled, and its keys attended, in one or two calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, NodeArg, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.workspace import shared_scratch
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from .flash import KINDS, AttentionShape, places

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.task import TaskFunction

__all__ = [
    "ATTEND_FEW",
    "ATTEND_HALVES",
    "ATTENTION",
    "HALF",
    "IN_PLACE",
    "MOST_FEW",
    "CachedAttention",
    "Launch",
    "Memory",
    "Rotary",
    "attends_few",
    "common_counts",
    "few_bytes",
    "is_readable",
    "is_spread",
    "reads_halves",
    "rotation",
    "steps_along",
    "takes",
    "task_of",
    "tile_bytes",
]

FLOAT, HALF = np.dtype(np.float32), np.dtype(np.float16)
FEW_KINDS = "q" * 64 + "ffqq"
MOST_FEW = 16
"""Queries of a head of keys that are attended at once."""
VECTOR = 16
BLOCK, SPARE_BYTES = 64, 192
"""Keys at a time, as in ``compiled.decode``; bytes of a part's working memory that do not depend on sizes."""
BYTES_PER_THREAD = 1 << 20
"""Bytes read or written that take longer than waking a thread up, and much longer than asking whether it sleeps."""

ROTATION_WORK = 2
"""Elements of a few instructions each that one that is rotated is worth."""

NOTHING = (0, 0, 0, 0)
EXTEND, ATTEND_FEW, ROTATE = (("cached_attention", name) for name in ("extend", "attend_few", "rotate"))
ATTEND_HALVES = ("half_caches", "attend_halves")
ATTENTION = ("attention", "attention")
IN_PLACE = 58
"""Position of ``CachedAttention.is_in_place`` among the arguments of the first."""


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
        are_known: bool = True,
    ) -> Any:
        """Rotation of heads of a size, of (batch, tokens); ``NotImplemented`` if the arrays do not fit.

        Where the rows are not known yet, whoever runs tasks has to look at them.
        """
        is_shaped = cos.ndim == 2 and cos.shape == sin.shape and 0 < 2 * cos.shape[1] <= size and cos.shape[0]
        if not is_shaped or not is_readable(cos, sin) or cos.strides != sin.strides:
            return NotImplemented
        if rows is not None:
            if rows.shape != tokens or rows.dtype != np.int64:
                return NotImplemented
            is_wrong = rows.min() < 0 or rows.max() >= cos.shape[0] if are_known else not rows.flags.c_contiguous
            if is_wrong:
                return NotImplemented
            rows = np.ascontiguousarray(rows)
        return cls(cos, sin, is_interleaved, rows)

    @property
    def arguments(self) -> tuple[Any, ...]:
        """As tasks take them."""
        cos = self.cos
        return (cos, self.sin, cos.strides[0], cos.shape[1], int(self.is_interleaved), self.rows, cos.shape[0])


@dataclass(frozen=True, slots=True)
class Launch:
    """A task and its arguments."""

    name: tuple[str, str]
    """Module and task."""
    threads: int
    words: list[Any]
    """Arrays for its addresses, None or 0 for none, and numbers."""


Memory = Callable[[str, int], HostArray]
"""Gives so many bytes or more that go by a name."""


@dataclass(slots=True)
class CachedAttention:
    """softmax(scale * q k' + mask) v for float32, after new keys and values were put into their cache. Arrays are not checked.

    The cache, and what is past, may be float16 where few queries attend it.
    """

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
    is_of_queries: bool = False
    """Whether only the first part of it is added: keys and values come with theirs."""
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
        for launch in self.launches(shared_scratch().room):
            task_of(launch.name)(launch.threads, *launch.words)

    def launches(self, memory: Memory) -> list[Launch]:
        """The tasks that compute it, in order.

        Args:
            memory: gives working memory that all of them may write.
        """
        q, k, v, keys, values = self.q, self.k, self.v, self.keys, self.values
        value_size = values.shape[3] if values.ndim == 4 else values.shape[2] // self.key_heads
        new = None if k is None or v is None else (k.shape, k.strides, v.strides)
        settings = (self.heads, self.key_heads, value_size, self.left, self.right, self.is_in_place, self.scale, self.softcap)
        form = _form(q.shape, q.strides, new, self.out.strides, settings)
        words: list[Any] = form.words.copy()
        words[0], words[26], words[45] = q, self.out, self.counts
        if k is not None and v is not None:
            words[4], words[8] = k, v
        words[18:22], words[22:26] = places(keys, self.key_heads), places(values, self.key_heads)
        words[56], words[67] = keys.shape[2] if keys.ndim == 4 else keys.shape[1], self.most_keys
        self._put_optional(words)
        return self._few(words, form, memory) if form.is_few else self._many(words, form, memory)

    def _put_optional(self, words: list[Any]) -> None:
        """What not every node has."""
        past_key, past_value, mask, bias = self.past_key, self.past_value, self.mask, self.bias
        if past_key is not None and past_value is not None:
            words[12:15] = past_key, *past_key.strides[:2]
            words[15:18] = past_value, *past_value.strides[:2]
            words[55] = past_key.shape[2]
        if mask is not None:
            words[30:35] = (mask, *steps_along(mask))
        if bias is not None:
            size = words[51]
            words[35] = bias
            if not self.is_of_queries:
                words[36:38] = bias[self.heads * size :], bias[(self.heads + self.key_heads) * size :]
        if self.rotary is not None:
            words[38:45] = self.rotary.arguments
        if self.sinks is not None:
            words[46] = self.sinks

    def _threads(self, form: _Form) -> int:
        """How many are worth their waking for what is read and written of the cache."""
        return max(1, min(libraries.thread_count(), form.bytes_of_key * self.most_keys // BYTES_PER_THREAD))

    def _few(self, words: list[Any], form: _Form, memory: Memory) -> list[Launch]:
        """Few queries: threads share the keys of all heads, and fill the cache meanwhile."""
        threads = self._threads(form)
        part_bytes = few_bytes(form.rows, form.size, form.value_size)
        part_bytes += tile_bytes(form.size, form.value_size) if self.is_of_halves else 0
        words[60:63] = int(self.k is not None), memory("attention", threads * part_bytes), part_bytes
        return [Launch(ATTEND_HALVES if self.is_of_halves else ATTEND_FEW, threads, words)]

    @property
    def is_of_halves(self) -> bool:
        """Whether the cache is float16; only few queries attend such a one, see ``attends_few``."""
        return bool(self.keys.dtype == HALF)

    def _many(self, words: list[Any], form: _Form, memory: Memory) -> list[Launch]:
        """Many queries: all keys are in the cache first."""
        shape = AttentionShape(form.batch, self.heads, form.length, self.most_keys, form.size, form.value_size, self.scale)
        launches, q, bias = [], words[:4], words[35]
        if self.rotary is not None or self.k is not None:
            if self.rotary is not None:
                head = form.length * form.size * FLOAT.itemsize
                words[63] = memory("queries", form.batch * self.heads * head)
                q, bias = [words[63], self.heads * head, head, form.size * FLOAT.itemsize], 0
            launches.append(Launch(EXTEND, min(form.items, self._threads(form)), words))
        threads = shape.threads(libraries.thread_count())
        work = memory("attention", threads * shape.part_bytes)
        value_bias = 0 if self.k is not None else words[37]
        limits = (words[49], words[45], self.left, self.right, words[46], self.softcap)
        operands = (*q, *words[18:35], bias, value_bias)
        arguments = [*operands, *shape.arguments, form.batch, work, shape.part_bytes, *limits]
        launches.append(Launch(ATTENTION, threads, arguments))
        return launches


@dataclass(frozen=True, slots=True)
class _Form:
    """How queries and new keys lie, which is the same from run to run while a cache grows."""

    batch: int
    length: int
    size: int
    value_size: int
    is_few: bool
    rows: int
    """Queries that share a head of keys."""
    items: int
    """Heads of keys of all samples."""
    bytes_of_key: int
    """Read and written for each key."""
    words: list[float]
    """Arguments of the tasks, with 0 for what is known in a run."""


@functools.lru_cache(maxsize=64)
def _form(
    q_shape: tuple[int, ...],
    q_strides: tuple[int, ...],
    new: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None,
    out_strides: tuple[int, ...],
    settings: tuple[Any, ...],
) -> _Form:
    heads, key_heads, value_size, left, right, is_in_place, scale, softcap = settings
    batch, length = q_shape[0], q_shape[2 if len(q_shape) == 4 else 1]
    size, group = q_shape[3] if len(q_shape) == 4 else q_shape[2] // heads, heads // key_heads
    rows, items, passes = group * length, batch * key_heads, 1 if new is None or is_in_place else 3
    k, v = (NOTHING, NOTHING) if new is None else (_steps_of(new[1], size), _steps_of(new[2], value_size))
    words: list[float] = [*_steps_of(q_strides, size), *k, *v, *[0] * 14, *_steps_of(out_strides, value_size), *[0] * 17]
    words += [batch, key_heads, group, length, size, value_size, left, right, 0, 0, int(new is not None), int(is_in_place)]
    words += [0, 0, 0, 0, 0, scale, softcap, 0 if new is None else new[0][-2 if len(new[0]) == 4 else 1], 0]
    is_few = attends_few(rows, size, value_size)
    bytes_of_key = passes * items * (size + value_size) * FLOAT.itemsize
    return _Form(batch, length, size, value_size, is_few, rows, items, bytes_of_key, words)


def attends_few(rows: int, size: int, value_size: int) -> bool:
    """Whether so many queries of a head of keys are few: they are attended as the cache is filled."""
    return rows <= MOST_FEW and not size % VECTOR and not value_size % VECTOR


def few_bytes(rows: int, size: int, value_size: int) -> int:
    """Working memory of a thread that attends so many queries at once, and leaves two heads' sums to be combined."""
    return SPARE_BYTES + rows * (size * 4 + BLOCK * 4 + 3 * (value_size * 4 + 8)) & -64


def tile_bytes(size: int, value_size: int) -> int:
    """Working memory of a thread beside that, of a cache of float16: a block of it in float32."""
    return BLOCK * (size + value_size) * FLOAT.itemsize


def _steps_of(strides: tuple[int, ...], size: int) -> tuple[int, int, int, int]:
    """Bytes from one to the next of batch, heads and rows, behind a place for an address."""
    return (0, *strides[:3]) if len(strides) == 4 else (0, strides[0], size * FLOAT.itemsize, strides[1])


def steps_along(mask: HostArray) -> tuple[int, ...]:
    """Bytes from one to the next number of a mask along four dimensions, 0 where it has one for all."""
    own = tuple([0 if size == 1 else step for size, step in zip(mask.shape, mask.strides, strict=True)])
    return (0,) * (4 - len(own)) + own


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


def rotation(
    x: tuple[Any, ...], out: tuple[Any, ...], rotary: Rotary, sizes: tuple[int, int, int, int], counts: HostArray | None = None
) -> Launch:
    """The task that rotates heads.

    Args:
        x: the array, and bytes from one to the next of batch, heads and rows.
        out: where they go, the same.
        rotary: how.
        sizes: batch, tokens, heads and elements of a head.
        counts: ``CachedAttention.counts``, where the rotation has no rows of tokens.
    """
    batch, length, heads, size = sizes
    threads = threads_for(ROTATION_WORK * batch * length * heads * size)
    rest = (counts, 0, batch, heads, 1, length, size, size, *[0] * 11)
    return Launch(ROTATE, threads, [*x, *[0] * 22, *out, *[0] * 8, *rotary.arguments, *rest, 1.0, 0.0, 0, 0])


def reads_halves() -> bool:
    """Whether the tasks read and fill caches of float16 here: processors below AVX2 have no instructions for it."""
    return instruction_set() >= InstructionSet.AVX2


def takes(arguments: Sequence[NodeArg | None]) -> bool:
    """Whether the tasks can run here, on these inputs and outputs: all are of float32."""
    are_floats = all(argument is None or argument.element_type is TensorElementType.FLOAT for argument in arguments)
    return are_floats and libraries.numba().is_usable


def is_readable(*arrays: HostArray | None) -> bool:
    """Whether rows of arrays have no gaps."""
    return all(array is None or array.strides[-1] == array.itemsize for array in arrays)


@functools.cache
def task_of(name: tuple[str, str]) -> TaskFunction:
    """A task by its module and name."""
    from ort_sdk_cpu.jit.task import task_function

    return task_function(*name, KINDS if name == ATTENTION else FEW_KINDS)
