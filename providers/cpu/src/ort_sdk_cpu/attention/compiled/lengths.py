"""What attention over a key-value cache works out of the numbers it is given, and lengths. All tasks are of one thread."""

from __future__ import annotations

import numpy as np

from ort_sdk_cpu.jit.task import task
from ort_sdk_cpu.simd.arguments import argument, number
from ort_sdk_cpu.simd.memory import read_i32, read_i64, write_f32, write_i64

__all__ = ["check_lengths", "check_rows", "count_from", "count_tokens", "end_numbers", "mask_numbers"]


@task
def count_tokens(record: int, _part: int, _parts: int) -> None:
    """Row of the first new key, position of the first query, and keys, of each sequence.

    Arguments: set where the lengths contradict each other; last position of each sequence, int32; sequences, new tokens of each,
    most tokens of one, rows of the past, whether queries see no later keys; where the counts go, int64 (sequences, 3).
    """
    lasts, batch, new, longest = argument(record, 1), argument(record, 2), argument(record, 3), argument(record, 4)
    past_rows, is_causal, out = argument(record, 5), argument(record, 6), argument(record, 7)
    most, failed = min(past_rows, longest - new), 0
    for sample in range(batch):
        last = read_i32(lasts + sample * 4)
        past = 0 if new == longest else last + 1 - new
        if past < 0 or past > most or last >= longest:
            failed = 1
        write_i64(out + sample * 24, past)
        write_i64(out + sample * 24 + 8, past)
        write_i64(out + sample * 24 + 16, longest if is_causal else last + 1)
    write_i64(record, failed)


@task
def count_from(record: int, _part: int, _parts: int) -> None:
    """Position of the first token, the same for all sequences, as ``count_tokens`` gives it.

    Arguments: set where a token has no row; the position, int64; sequences, tokens of each, rows; where the counts go.
    """
    first, batch, length = read_i64(argument(record, 1)), argument(record, 2), argument(record, 3)
    rows, out = argument(record, 4), argument(record, 5)
    for sample in range(batch):
        write_i64(out + sample * 24 + 8, first)
    write_i64(record, 1 if first < 0 or first > rows - length else 0)


@task
def check_rows(record: int, _part: int, _parts: int) -> None:
    """Whether all numbers are rows of a table.

    Arguments: set where one is not; numbers, int64; how many; rows.
    """
    numbers, count, rows = argument(record, 1), argument(record, 2), argument(record, 3)
    failed = 0
    for place in range(count):
        row = read_i64(numbers + place * 8)
        if row < 0 or row >= rows:
            failed = 1
    write_i64(record, failed)


@task
def check_lengths(record: int, _part: int, _parts: int) -> None:
    """Whether all lengths are such of sequences.

    Arguments: set where one is not; lengths, int32; how many; the largest that is allowed.
    """
    lengths, count, most = argument(record, 1), argument(record, 2), argument(record, 3)
    failed = 0
    for place in range(count):
        length = read_i32(lengths + place * 4)
        if length < 0 or length > most:
            failed = 1
    write_i64(record, failed)


@task
def mask_numbers(record: int, _part: int, _parts: int) -> None:
    """Numbers to add to scores: 0 where a mask is above 0.

    Arguments: mask, int32; how many elements it has; where the numbers go, float32; the number elsewhere.
    """
    mask, count, out, hidden = argument(record, 0), argument(record, 1), argument(record, 2), number(record, 3)
    for place in range(count):
        write_f32(out + place * 4, np.float32(0) if read_i32(mask + place * 4) > 0 else hidden)


@task
def end_numbers(record: int, _part: int, _parts: int) -> None:
    """Numbers to add to scores: 0 for the keys before the end.

    Arguments: the end of each sequence, int32; sequences, keys; where the numbers go, float32; the number behind the end.
    """
    ends, batch, keys = argument(record, 0), argument(record, 1), argument(record, 2)
    out, hidden = argument(record, 3), number(record, 4)
    for sample in range(batch):
        end = read_i32(ends + sample * 4)
        for key in range(keys):
            write_f32(out + (sample * keys + key) * 4, np.float32(0) if key < end else hidden)
