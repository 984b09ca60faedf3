"""Attention of few queries over a cache by several threads, which share the keys of all heads, beside float64."""

import numpy as np
import pytest
from ort_sdk_cpu.attention import decode
from ort_sdk_cpu.attention.arguments.decode import KEY_BLOCK as BLOCK
from ort_sdk_cpu.attention.decode import FLOAT16, CachedAttention, reads_float16
from ort_sdk_cpu.platform import libraries

from ort_sdk.testing.error_bounds import assert_sums_close

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))


@pytest.fixture(params=[1, 2, 3, 5, 8])
def threads(request, monkeypatch):
    """Threads that attend, however little there is to do."""
    monkeypatch.setattr(decode, "BYTES_PER_THREAD", 1)
    monkeypatch.setattr(libraries, "thread_count", lambda: request.param)
    return request.param


class Decoder:
    """A step of some tokens over a cache.

    Args:
        heads: of queries and of keys.
        size: of a head.
        pasts: tokens that each sequence has.
        new: tokens of the step.
        rows: of the past; those behind a sequence's tokens are NaN.
        dtype: of the cache.
        window: positions a query sees before its own; -1 for all.
        has_sinks: whether each head has a number that takes part in its softmax.
    """

    def __init__(self, heads, size, pasts, new, *, rows, dtype=np.float32, window=-1, has_sinks=False):
        rng = np.random.default_rng(0)
        self.heads, self.key_heads = heads
        self.size, self.pasts, self.new, self.window = size, pasts, new, window
        batch = len(pasts)
        self.q = rng.standard_normal((batch, new, self.heads * size), np.float32)
        self.k, self.v = (rng.standard_normal((batch, new, self.key_heads * size), np.float32) for _ in "kv")
        self.past = [rng.standard_normal((batch, self.key_heads, rows, size), np.float32).astype(dtype) for _ in "kv"]
        for each in self.past:
            for index, past in enumerate(pasts):
                each[index, :, past:] = np.nan
        self.sinks = rng.standard_normal(self.heads, np.float32) if has_sinks else None

    def run(self, *, is_in_place):
        """Result and cache."""
        rows, most = self.past[0].shape[2], max(self.pasts) + self.new
        past = [each.copy() for each in self.past]
        shape = (*past[0].shape[:2], max(rows, most), self.size)
        keys, values = past if is_in_place else (np.full(shape, np.nan, past[0].dtype) for _ in "kv")
        out = np.full(self.q.shape, np.nan, np.float32)
        counts = np.array([(past, past, most) for past in self.pasts], np.int64)
        CachedAttention(
            heads=self.heads,
            key_heads=self.key_heads,
            scale=self.size**-0.5,
            q=self.q,
            keys=keys,
            values=values,
            out=out,
            cache_positions=counts,
            max_keys=most,
            k=self.k,
            v=self.v,
            past_key=past[0],
            past_value=past[1],
            sinks=self.sinks,
            left=self.window,
            right=0,
            is_in_place=is_in_place,
        ).run()
        return out, keys, values

    def of_cache(self, past, new, index):
        """Rows of a sequence's keys or values: those of the past, and the new ones, as the cache rounds them."""
        own = new[index].reshape(self.new, self.key_heads, self.size).swapaxes(0, 1).astype(past.dtype)
        return np.concatenate([past[index, :, : self.pasts[index]], own], 1)

    def check(self, out, keys, values):
        """Compare with float64."""
        for index, past in enumerate(self.pasts):
            k, v = self.of_cache(self.past[0], self.k, index), self.of_cache(self.past[1], self.v, index)
            np.testing.assert_array_equal(keys[index, :, : past + self.new], k)
            np.testing.assert_array_equal(values[index, :, : past + self.new], v)
            q = self.q[index].reshape(self.new, self.heads, self.size).astype(np.float64)
            found = out[index].reshape(self.new, self.heads, self.size)
            for head in range(self.heads):
                own = head * self.key_heads // self.heads
                scores = q[:, head] @ k[own].astype(np.float64).T * self.size**-0.5
                distance = past + np.arange(self.new)[:, None] - np.arange(past + self.new)
                scores[(distance < 0) | ((distance > self.window) if self.window >= 0 else False)] = -np.inf
                sink = -np.inf if self.sinks is None else float(self.sinks[head])
                weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), sink))
                weights /= weights.sum(-1, keepdims=True) + np.exp(sink - np.maximum(scores.max(-1, keepdims=True), sink))
                wanted, sizes = weights @ v[own].astype(np.float64), weights @ np.abs(v[own].astype(np.float64))
                assert_sums_close(found[:, head], wanted, sizes, scores.shape[1] + self.size)


DTYPES = [np.float32, pytest.param(FLOAT16, marks=pytest.mark.skipif(not reads_float16(), reason="no instructions for float16"))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_in_place", [True, False])
@pytest.mark.parametrize("past", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1, 7 * BLOCK + 5])
@pytest.mark.parametrize("heads", [(9, 3), (2, 2), (4, 1)])
def test_one_sequence(threads, dtype, is_in_place, past, heads):
    decoder = Decoder(heads, 32, [past], 1, rows=past + 3, dtype=dtype)
    decoder.check(*decoder.run(is_in_place=is_in_place))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("is_in_place", [True, False])
@pytest.mark.parametrize("new", [1, 3])
@pytest.mark.parametrize("more", [{}, {"window": 70}, {"window": 5}, {"has_sinks": True}], ids=str)
def test_sequences_of_several_lengths(threads, dtype, is_in_place, new, more):
    decoder = Decoder((6, 3), 16, [300, 0, 64, 131], new, rows=303, dtype=dtype, **more)
    decoder.check(*decoder.run(is_in_place=is_in_place))


def test_results_do_not_depend_on_the_run(threads):
    decoder = Decoder((9, 3), 64, [500], 1, rows=501)
    first, *_ = decoder.run(is_in_place=True)
    for _ in range(20):
        again, *_ = decoder.run(is_in_place=True)
        np.testing.assert_array_equal(first, again)
