"""Lengths and masks that only a run knows, as attention takes them. All are small: tasks are of one thread."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.attention.arguments.lengths import (
    CachePositions,
    CachePositionsFrom,
    IndexCheck,
    KeyCountBias,
    LengthCheck,
    MaskBias,
)
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.memory import read_i32, read_i64, write_f32, write_i64

__all__ = ["cache_positions", "cache_positions_from", "check_indices", "check_lengths", "key_count_bias", "mask_bias"]


@task
def cache_positions(args: CachePositions, _thread: int, _threads: int) -> None:
    """Row of the first new key, position of the first query, and keys, of each sequence."""
    new, longest, out = args.new_tokens, args.longest, args.cache_positions
    most, failed = min(args.past_rows, longest - new), 0
    for sample in range(args.batch):
        last = read_i32(args.last_positions + sample * 4)
        # Where as many tokens are new as the longest sequence has, this is a prompt: shorter ones are padded at their ends.
        past = 0 if new == longest else last + 1 - new
        if past < 0 or past > most or last >= longest:
            failed = 1
        write_i64(out + sample * 24, past)
        write_i64(out + sample * 24 + 8, past)
        write_i64(out + sample * 24 + 16, longest if args.is_causal else last + 1)
    args.failed = failed


@task
def cache_positions_from(args: CachePositionsFrom, _thread: int, _threads: int) -> None:
    """Position of the first token, the same for all sequences."""
    # Of each sequence only the position is written: a rotation reads nothing else.
    first, out = read_i64(args.position), args.cache_positions
    for sample in range(args.batch):
        write_i64(out + sample * 24 + 8, first)
    args.failed = 1 if first < 0 or first > args.rows - args.tokens else 0


@task
def check_indices(args: IndexCheck, _thread: int, _threads: int) -> None:
    """Whether all indices are rows of a table."""
    failed, rows = 0, args.rows
    for position in range(args.count):
        row = read_i64(args.indices + position * 8)
        if row < 0 or row >= rows:
            failed = 1
    args.failed = failed


@task
def check_lengths(args: LengthCheck, _thread: int, _threads: int) -> None:
    """Whether all lengths are such of sequences."""
    failed = 0
    for position in range(args.count):
        length = read_i32(args.lengths + position * 4)
        if length < 0 or length > args.most:
            failed = 1
    args.failed = failed


@task
def mask_bias(args: MaskBias, _thread: int, _threads: int) -> None:
    """Numbers to add to scores: 0 where a mask is above 0."""
    # Fields are read before the loop: a store could change them, so that the compiler would read them each time.
    mask, out, hidden = args.mask, args.out, args.hidden
    for position in range(args.count):
        write_f32(out + position * 4, np.float32(0) if read_i32(mask + position * 4) > 0 else hidden)


@task
def key_count_bias(args: KeyCountBias, _thread: int, _threads: int) -> None:
    """Numbers to add to scores: 0 for the first keys."""
    keys, out, hidden = args.keys, args.out, args.hidden
    for sample in range(args.batch):
        count = read_i32(args.counts + sample * 4)
        for key in range(keys):
            write_f32(out + (sample * keys + key) * 4, np.float32(0) if key < count else hidden)
