"""Attention of few queries over a key-value cache of float16: new keys and values are rounded, what is read is widened.

A block of keys and values is widened once for all queries that share it, to memory near the core, and attended there as float32:
reading a cache takes as long as memory gives it, which is half as long for half the bytes. Each thread has that memory, a block
of keys and one of values as float32, at the end of its workspace. All else is as in ``decode``.
"""

from __future__ import annotations

from typing import Any

from numba import types

from ort_sdk_cpu.attention.arguments.decode import KEY_BLOCK, CachedTokens
from ort_sdk_cpu.attention.arguments.decode_f16 import DecodeAttentionFloat16
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.float16_conversions import emit_narrow
from ort_sdk_cpu.simd.fp16 import load_f16
from ort_sdk_cpu.simd.memory import emit_store, load_f32, store_f32
from ort_sdk_cpu.simd.vector_types import f32x16, operation

from .cache_rows import append_start, copy_past, end_append
from .decode import all_blocks, attend_keys, begin, block_count, combine, end, is_copied, shared_keys, visible_keys
from .operands import row_of
from .rotary import ONE, rotate_row

__all__ = ["decode_attention_f16"]

_HALF = 2
"""Bytes of a float16."""


@operation(types.none, types.intp, f32x16)
def _store_f16(builder: Any, address: Any, value: Any) -> None:
    emit_store(builder, address, emit_narrow(builder, value))


@inline
def _narrow(x: int, out: int, size: int) -> None:
    for element in range(0, size, 16):
        _store_f16(out + element * 2, load_f32(x + element * 4))


@inline
def _widen(x: int, x_row: int, rows: int, size: int, out: int) -> None:
    # Widened rows are contiguous, whatever the stride of the cache is.
    for row in range(rows):
        for element in range(0, size, 16):
            store_f32(out + (row * size + element) * 4, load_f16(x + row * x_row + element * 2))


@inline
def _append_rows(args: CachedTokens, batch: int, head: int, workspace: int) -> None:
    """The new rows of a head to the cache, and what comes after them; ``workspace`` has room for a row."""
    size, start = args.head_size, append_start(args, batch)
    for token in range(min(args.new_tokens, args.capacity - start)):
        # Rotated in float32, so that keys are rounded once.
        rotate_row(args, batch, token, row_of(args.k, batch, head, token), 0, size, ONE, workspace)
        _narrow(workspace, row_of(args.keys, batch, head, start + token), size)
        _narrow(row_of(args.v, batch, head, token), row_of(args.values, batch, head, start + token), args.value_size)
    end_append(args, _HALF, batch, head)


@inline
def _attend(args: CachedTokens, batch: int, head: int, first: int, stop: int, blocks: int, workspace: int, widened: int) -> None:
    """Some of the blocks of a head of keys; ``widened`` is where a block of keys and one of values become float32."""
    (from_key, keys), (low, high) = shared_keys(args, batch), visible_keys(args, batch)
    until = keys if stop == blocks else from_key + stop * KEY_BLOCK
    past = min(append_start(args, batch), args.past_rows) if is_copied(args) else 0
    size, value_size = args.head_size, args.value_size
    # Both stay in the second-level cache: a block of keys and one of values of heads of 128 are 64 KiB.
    v = widened + KEY_BLOCK * size * 4
    begin(args, batch, head, int(first == 0), workspace)
    is_first = 1
    for key in range(from_key + first * KEY_BLOCK, until, KEY_BLOCK):
        copy_past(args, _HALF, batch, head, key, min(past, key + KEY_BLOCK, until))
        count = min(KEY_BLOCK, min(until, high) - key)
        if count > 0 and key >= low:
            _widen(row_of(args.keys, batch, head, key), args.keys.row_stride, count, size, widened)
            _widen(row_of(args.values, batch, head, key), args.values.row_stride, count, value_size, v)
            # Widening has read all of it in order, which the processor prefetches by itself.
            attend_keys(args, batch, head, key, count, workspace, is_first, widened, size * 4, v, value_size * 4, 0)
            is_first = 0
    end(args, batch, head, int(first == 0), int(stop == blocks), 1 - is_first, workspace)


@task
def decode_attention_f16(args: DecodeAttentionFloat16, thread: int, threads: int) -> None:
    """Attention of few queries; each thread has a range of blocks of keys. Sizes of keys and values are multiples of 16."""
    workspace = args.workspace + thread * args.thread_bytes
    widened = workspace + args.thread_bytes - KEY_BLOCK * (args.head_size + args.value_size) * 4
    total, base = all_blocks(args), 0
    low, high = total * thread // threads, total * (thread + 1) // threads
    for batch in range(args.batch):
        blocks = block_count(args, batch)
        for head in range(args.key_heads):
            first, stop = max(low - base, 0), min(high - base, blocks)
            if first < stop:
                if stop == blocks and args.appends:
                    _append_rows(args, batch, head, widened)
                _attend(args, batch, head, first, stop, blocks, workspace, widened)
            base += blocks
    combine(args, threads)
