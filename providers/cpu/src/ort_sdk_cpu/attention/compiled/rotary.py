"""Rotary position embedding (RoFormer, Su et al. 2021): pairs of elements are rotated by angles of their position."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk_cpu.attention.arguments.operands import Tokens
from ort_sdk_cpu.attention.arguments.rotary import RotaryEmbedding
from ort_sdk_cpu.jit.numba_frontend import inline
from ort_sdk_cpu.jit.task_code import task
from ort_sdk_cpu.simd.arithmetic import add, fused_multiply_add, multiply, splat_f32, subtract
from ort_sdk_cpu.simd.memory import load_f32_masked, read_i64, store_f32_masked
from ort_sdk_cpu.simd.shuffles import even_lanes, interleave_high, interleave_low, odd_lanes

from .operands import row_of

__all__ = ["ONE", "biased", "first_position", "rotary_embedding", "rotate_row"]

ONE = np.float32(1)


@inline
def first_position(args: Tokens, batch: int) -> Any:
    """Position of the first query of a sequence. Not below 0: what is read at run time says where memory is touched."""
    return max(0, read_i64(args.cache_positions + (batch * 3 + 1) * 8))


@inline
def biased(x: int, bias: int, element: int, left: int) -> Any:
    """16 elements, or those that are left, plus a bias; ``bias`` is 0 for none."""
    value = load_f32_masked(x + element * 4, left)
    return add(value, load_f32_masked(bias + element * 4, left)) if bias else value


@inline
def _rotate_interleaved(x: int, bias: int, factors: Any, cos: int, sin: int, pairs: int, out: int) -> None:
    """Pairs are neighbours, as in GPT-J."""
    # Two vectors of neighbours are split into first and second elements, rotated, and interleaved again.
    for pair in range(0, pairs, 16):
        left = 2 * (pairs - pair)
        low, high = biased(x, bias, 2 * pair, left), biased(x, bias, 2 * pair + 16, left - 16)
        first, second = multiply(even_lanes(low, high), factors), multiply(odd_lanes(low, high), factors)
        c, s = load_f32_masked(cos + pair * 4, pairs - pair), load_f32_masked(sin + pair * 4, pairs - pair)
        real = subtract(multiply(first, c), multiply(second, s))
        imaginary = fused_multiply_add(first, s, multiply(second, c))
        store_f32_masked(out + pair * 8, interleave_low(real, imaginary), left)
        store_f32_masked(out + pair * 8 + 64, interleave_high(real, imaginary), left - 16)


@inline
def _rotate_halves(x: int, bias: int, factors: Any, cos: int, sin: int, pairs: int, out: int) -> None:
    """A pair is an element of the first half and one of the second, as in GPT-NeoX and Llama."""
    for pair in range(0, pairs, 16):
        left = pairs - pair
        first = multiply(biased(x, bias, pair, left), factors)
        second = multiply(load_f32_masked(x + (pairs + pair) * 4, left), factors)
        if bias:
            second = fused_multiply_add(load_f32_masked(bias + (pairs + pair) * 4, left), factors, second)
        c, s = load_f32_masked(cos + pair * 4, left), load_f32_masked(sin + pair * 4, left)
        store_f32_masked(out + pair * 4, subtract(multiply(first, c), multiply(second, s)), left)
        store_f32_masked(out + (pairs + pair) * 4, fused_multiply_add(first, s, multiply(second, c)), left)


@inline
def rotate_row(args: Tokens, batch: int, token: int, x: int, bias: int, size: int, factor: float, out: int) -> None:
    """(x + bias) * factor, rotated by the token's position: the elements of the tables' pairs, and the others as they are."""
    factors, tables = splat_f32(factor), args.rotary
    pairs = tables.pairs
    if pairs:
        rows = tables.token_rows
        row = read_i64(rows + (batch * args.tokens + token) * 8) if rows else first_position(args, batch) + token
        # Positions are read at run time: whatever they are, no row after the last one is read.
        offset = min(row, tables.rows - 1) * tables.row_stride
        cos, sin = tables.cos + offset, tables.sin + offset
        if tables.is_interleaved:
            _rotate_interleaved(x, bias, factors, cos, sin, pairs, out)
        else:
            _rotate_halves(x, bias, factors, cos, sin, pairs, out)
    for element in range(2 * pairs, size, 16):
        store_f32_masked(out + element * 4, multiply(biased(x, bias, element, size - element), factors), size - element)


@task
def rotary_embedding(args: RotaryEmbedding, thread: int, threads: int) -> None:
    """RotaryEmbedding; each thread has a range of tokens."""
    tokens = args.tokens
    # Tokens, not heads, are shared: all heads of a token use the same cosines and sines.
    items = args.batch * tokens
    for item in range(items * thread // threads, items * (thread + 1) // threads):
        batch, token = item // tokens, item % tokens
        for head in range(args.heads):
            x, out = row_of(args.x, batch, head, token), row_of(args.out, batch, head, token)
            rotate_row(args, batch, token, x, 0, args.size, ONE, out)
