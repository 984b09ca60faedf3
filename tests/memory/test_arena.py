"""Buffers laid out by lifetime."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ort_sdk.api import TensorElementType
from ort_sdk.memory import Arena, BufferLifetime, lay_out

LIFETIMES = st.lists(
    st.tuples(st.integers(0, 500), st.integers(0, 20), st.integers(0, 20)).map(
        lambda row: BufferLifetime(row[0], min(row[1:]), max(row[1:]))
    ),
    max_size=30,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LIFETIMES)
def test_buffers_that_live_together_do_not_overlap(buffers):
    offsets, total = lay_out(buffers)
    for first, (one, start) in enumerate(zip(buffers, offsets, strict=True)):
        assert start % 64 == 0
        assert start + one.nbytes <= total
        for other, begin in list(zip(buffers, offsets, strict=True))[first + 1 :]:
            together = one.first <= other.last and other.first <= one.last
            apart = start + one.nbytes <= begin or begin + other.nbytes <= start
            assert not together or apart or not one.nbytes or not other.nbytes


def test_buffers_that_never_meet_share_memory():
    offsets, total = lay_out([BufferLifetime(640, 0, 1), BufferLifetime(640, 2, 3), BufferLifetime(64, 1, 2)])
    assert offsets[0] == offsets[1]
    assert total == 704


def test_views_are_aligned_and_earlier_ones_survive_growth():
    arena = Arena()
    first = Arena.view(arena.reserve(100), 0, (5, 5), TensorElementType.FLOAT)
    first[...] = 7
    second = Arena.view(arena.reserve(10_000), 64, (10,), TensorElementType.DOUBLE)
    second[...] = 1
    assert first.ctypes.data % 64 == 0
    assert second.ctypes.data % 64 == 0
    assert np.all(first == 7)
