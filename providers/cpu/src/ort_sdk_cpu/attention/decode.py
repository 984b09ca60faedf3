"""Attention over a key-value cache by compiled tasks: one fills the cache and attends its keys, or one does each (``select``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ort_sdk.api import HostArray, NodeArg, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.memory.workspace import shared_workspace
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from .arguments.decode import MODULE, NO_PAST, AppendToCache, CachedTokens, DecodeAttention, thread_workspace_bytes
from .arguments.decode_f16 import MODULE as MODULE_F16
from .arguments.decode_f16 import DecodeAttentionFloat16
from .arguments.decode_f16 import thread_workspace_bytes as thread_workspace_bytes_f16
from .arguments.flash import MODULE as FLASH
from .arguments.flash import FlashAttention
from .arguments.operands import ABSENT, NO_BIAS, strided_heads
from .arguments.rotary import MODULE as ROTARY
from .arguments.rotary import RotaryEmbedding
from .flash import AttentionShape
from .select import AttentionAlgorithm, AttentionProblem, select_over_cache

if TYPE_CHECKING:
    from ort_sdk_cpu.jit.arguments import TaskArguments
    from ort_sdk_cpu.jit.task import TaskFunction

__all__ = [
    "FLOAT16",
    "NO_ROTATION",
    "CachedAttention",
    "Launch",
    "Memory",
    "Rotary",
    "broadcasts_to",
    "common_cache_positions",
    "has_contiguous_rows",
    "reads_float16",
    "rotation",
    "strides_along",
    "takes_float32",
]

FLOAT, FLOAT16 = np.dtype(np.float32), np.dtype(np.float16)
BYTES_PER_THREAD = 1 << 20
"""Bytes for each thread: reading or writing them takes longer than waking it up, and so much longer that it does not
matter whether it sleeps."""

DECODING = frozenset({AttentionAlgorithm.DECODE, AttentionAlgorithm.DECODE_F16})
"""Algorithms that fill the cache themselves."""

ROTATION_WORK = 2
"""Elements of a few instructions each that a rotated one counts as."""

NO_ROTATION = (None, None, 0, 0, 0, None, 0)
"""Words of ``RotaryTables`` where nothing is rotated."""


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
        if not is_shaped or not has_contiguous_rows(cos, sin) or cos.strides != sin.strides:
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
    def words(self) -> tuple[Any, ...]:
        """Words of ``RotaryTables``."""
        cos = self.cos
        return (cos, self.sin, cos.strides[0], cos.shape[1], int(self.is_interleaved), self.rows, cos.shape[0])


@dataclass(frozen=True, slots=True)
class Launch:
    """A task and its arguments."""

    module: str
    name: str
    threads: int
    arguments: TaskArguments
    """With arrays for its addresses, None for none."""

    def run(self) -> None:
        """Do the work; returns when it is done."""
        _task(self.module, self.name)(self.threads, self.arguments)


Memory = Callable[[str, int], HostArray]
"""Gives so many bytes or more of workspace that go by a name."""


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
    cache_positions: HostArray
    """int64 (batch, 3): row of the first new key, position of the first query, keys."""
    max_keys: int
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
    """Of queries, keys and values, concatenated."""
    has_query_bias_only: bool = False
    """Whether only that of queries is added: keys and values have theirs already."""
    rotary: Rotary | None = None
    sinks: HostArray | None = None
    """(heads,) scores without values that take part in the softmaxes."""
    left: int = -1
    """Positions a query sees before its own; -1 for all."""
    right: int = -1
    softcap: float = 0.0
    is_in_place: bool = False
    """Whether the cache is in the past's memory."""
    algorithm: AttentionAlgorithm | None = None
    """How it is computed; None before that."""

    def run(self) -> None:
        """Compute."""
        for launch in self.launches(shared_workspace().buffer):
            launch.run()

    def launches(self, memory: Memory) -> list[Launch]:
        """The tasks that compute it, in order.

        Args:
            memory: gives workspace that all of them may write.
        """
        form = self._form()
        self.algorithm = form.algorithm
        return self._decode(form, memory) if form.algorithm in DECODING else self._append_and_attend(form, memory)

    def _form(self) -> _Form:
        k, v, values = self.k, self.v, self.values
        value_size = values.shape[3] if values.ndim == 4 else values.shape[2] // self.key_heads
        new = None if k is None or v is None else (k.shape, k.strides, v.strides)
        heads = (self.heads, self.key_heads, value_size, self.is_in_place, self.is_float16)
        return _form(self.q.shape, self.q.strides, new, self.out.strides, heads)

    def _arguments(
        self, kind: type[CachedTokens], form: _Form, workspace: tuple[Any, int] = (None, 0), rotated: HostArray | None = None
    ) -> CachedTokens:
        """Of a task over the cache."""
        keys, values, has_new = self.keys, self.values, self.k is not None and self.v is not None
        rotary = NO_ROTATION if self.rotary is None else self.rotary.words
        past_key, past_value, past_rows = self.past_key, self.past_value, 0
        past: tuple[Any, Any] = NO_PAST
        if past_key is not None and past_value is not None:
            past = ((past_key, *past_key.strides[:2]), (past_value, *past_value.strides[:2]))
            past_rows = past_key.shape[2]
        capacity = keys.shape[2] if keys.ndim == 4 else keys.shape[1]
        made: CachedTokens = kind.of(
            (*rotary, self.cache_positions, form.batch, form.length),
            (self.q, *form.q),
            (strided_heads(keys, self.key_heads), strided_heads(values, self.key_heads)),
            (self.out, *form.out),
            form.sizes,
            (past_rows, capacity, int(has_new), int(self.is_in_place), form.new_tokens, self.max_keys),
            workspace=workspace,
            factors=(self.scale, self.softcap),
            new=((self.k, *form.k), (self.v, *form.v)) if has_new else (ABSENT, ABSENT),
            past=past,
            mask=self._mask(),
            biases=self._biases(form.size),
            sinks=self.sinks,
            window=(self.left, self.right),
            rotated=rotated,
        )
        return made

    def _mask(self) -> tuple[Any, ...]:
        """Words of ``ScoreBias``."""
        return NO_BIAS if self.mask is None else (self.mask, *strides_along(self.mask))

    def _biases(self, size: int) -> tuple[Any, Any, Any]:
        """Of queries, keys and values."""
        bias = self.bias
        if bias is None or self.has_query_bias_only:
            return bias, None, None
        return bias, bias[self.heads * size :], bias[(self.heads + self.key_heads) * size :]

    def _threads(self, form: _Form) -> int:
        """How many are worth waking for what is read and written of the cache."""
        return max(1, min(libraries.thread_count(), form.bytes_of_key * self.max_keys // BYTES_PER_THREAD))

    def _decode(self, form: _Form, memory: Memory) -> list[Launch]:
        """Few queries: threads share the keys of all heads, and fill the cache meanwhile."""
        threads, sizes = self._threads(form), (form.rows, form.size, form.value_size)
        thread_bytes = thread_workspace_bytes_f16(*sizes) if self.is_float16 else thread_workspace_bytes(*sizes)
        workspace = (memory("attention", threads * thread_bytes), thread_bytes)
        if self.is_float16:
            arguments = self._arguments(DecodeAttentionFloat16, form, workspace)
            return [Launch(MODULE_F16, "decode_attention_f16", threads, arguments)]
        return [Launch(MODULE, "decode_attention", threads, self._arguments(DecodeAttention, form, workspace))]

    @property
    def is_float16(self) -> bool:
        """Whether the cache is float16; only few queries attend such a one, see ``select``."""
        return bool(self.keys.dtype == FLOAT16)

    def _append_and_attend(self, form: _Form, memory: Memory) -> list[Launch]:
        """Many queries: all keys are in the cache first."""
        launches, (q_bias, _, v_bias) = [], self._biases(form.size)
        q: tuple[Any, ...] = (self.q, *form.q)
        if self.rotary is not None or self.k is not None:
            rotated = None
            if self.rotary is not None:
                row = form.size * FLOAT.itemsize
                head, q_bias = form.length * row, None
                rotated = memory("queries", form.batch * self.heads * head)
                q = (rotated, self.heads * head, head, row)
            threads = min(form.items, self._threads(form))
            launches.append(Launch(MODULE, "append_to_cache", threads, self._arguments(AppendToCache, form, rotated=rotated)))
        keys, values = strided_heads(self.keys, self.key_heads), strided_heads(self.values, self.key_heads)
        shape = AttentionShape(form.batch, self.heads, form.length, self.max_keys, form.size, form.value_size, self.scale)
        threads = shape.threads(libraries.thread_count())
        workspace = (memory("attention", threads * shape.thread_bytes), shape.thread_bytes)
        biases = (q_bias, None if self.k is not None else v_bias)
        visible = (self.heads // self.key_heads, self.cache_positions, self.left, self.right, self.sinks, self.softcap)
        operands = (q, keys, values, (self.out, *form.out))
        arguments = FlashAttention.of(operands, shape.words, workspace, self._mask(), biases, visible)
        launches.append(Launch(FLASH, "flash_attention", threads, arguments))
        return launches


Strides = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Form:
    """What follows from shapes and strides of queries and new keys, which are the same from run to run while a cache grows."""

    batch: int
    length: int
    size: int
    value_size: int
    algorithm: AttentionAlgorithm
    rows: int
    """Queries that share a head of keys."""
    items: int
    """Heads of keys of all samples."""
    bytes_of_key: int
    """Read and written for each key."""
    new_tokens: int
    sizes: tuple[int, int, int, int]
    """``CachedTokens.key_heads`` to ``value_size``."""
    q: Strides
    """Of queries, as the next of new keys and values, and of the result."""
    k: Strides
    v: Strides
    out: Strides


@functools.lru_cache(maxsize=64)
def _form(
    q_shape: tuple[int, ...],
    q_strides: tuple[int, ...],
    new: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None,
    out_strides: tuple[int, ...],
    settings: tuple[int, int, int, bool, bool],
) -> _Form:
    heads, key_heads, value_size, is_in_place, is_float16 = settings
    batch, length = q_shape[0], q_shape[2 if len(q_shape) == 4 else 1]
    size, group = q_shape[3] if len(q_shape) == 4 else q_shape[2] // heads, heads // key_heads
    rows, items, passes = group * length, batch * key_heads, 1 if new is None or is_in_place else 3
    has_new = new is not None
    problem = AttentionProblem(batch, heads, length, 0, size, value_size, group, has_new, is_float16)
    return _Form(
        batch,
        length,
        size,
        value_size,
        select_over_cache(problem),
        rows,
        items,
        bytes_of_key=passes * items * (size + value_size) * FLOAT.itemsize,
        new_tokens=0 if new is None else new[0][-2 if len(new[0]) == 4 else 1],
        sizes=(key_heads, group, size, value_size),
        q=_strides_of(q_strides, size),
        k=(0, 0, 0) if new is None else _strides_of(new[1], size),
        v=(0, 0, 0) if new is None else _strides_of(new[2], value_size),
        out=_strides_of(out_strides, value_size),
    )


def _strides_of(strides: tuple[int, ...], size: int) -> Strides:
    """Bytes from one to the next of batch, heads and rows."""
    return (strides[0], strides[1], strides[2]) if len(strides) == 4 else (strides[0], size * FLOAT.itemsize, strides[1])


def strides_along(mask: HostArray) -> tuple[int, ...]:
    """Strides of ``ScoreBias`` of a mask of up to four dimensions: 0 where it has one number for all."""
    own = tuple([0 if size == 1 else step for size, step in zip(mask.shape, mask.strides, strict=True)])
    return (0,) * (4 - len(own)) + own


def broadcasts_to(mask: HostArray | None, scores: tuple[int, ...]) -> bool:
    """Whether a mask broadcasts to the scores; None does."""
    if mask is None:
        return True
    whole = scores[len(scores) - mask.ndim :]
    return mask.ndim <= len(scores) and all(own in {1, most} for own, most in zip(mask.shape, whole, strict=True))


@functools.lru_cache(maxsize=32)
def common_cache_positions(batch: int, start: int, position: int, keys: int) -> HostArray:
    """``CachedAttention.cache_positions`` that are the same for all samples."""
    return np.array([(start, position, keys)] * batch, np.int64)


def rotation(
    x: tuple[Any, ...],
    out: tuple[Any, ...],
    rotary: Rotary,
    sizes: tuple[int, int, int, int],
    cache_positions: HostArray | None = None,
) -> Launch:
    """The task that rotates heads.

    Args:
        x: words of ``HeadRows``.
        out: the same of where they go.
        rotary: how.
        sizes: batch, tokens, heads and elements of a head.
        cache_positions: ``CachedAttention.cache_positions``, where the rotation has no rows of tokens.
    """
    batch, length, heads, size = sizes
    threads = threads_for(ROTATION_WORK * batch * length * heads * size)
    return Launch(ROTARY, "rotary_embedding", threads, RotaryEmbedding.of(x, out, rotary.words, sizes, cache_positions))


def reads_float16() -> bool:
    """Whether tasks read and fill caches of float16 here: F16C, which converts them, came with AVX2."""
    return instruction_set() >= InstructionSet.AVX2


def takes_float32(arguments: Sequence[NodeArg | None]) -> bool:
    """Whether tasks can be used here, and inputs and outputs are of float32."""
    are_floats = all(argument is None or argument.element_type is TensorElementType.FLOAT for argument in arguments)
    return are_floats and libraries.compiled_kernels().is_usable


def has_contiguous_rows(*arrays: HostArray | None) -> bool:
    """Whether the elements of arrays' rows follow each other."""
    return all(array is None or array.strides[-1] == array.itemsize for array in arrays)


@functools.cache
def _task(module: str, name: str) -> TaskFunction:
    from ort_sdk_cpu.jit.task import task_function

    return task_function(module, name)
