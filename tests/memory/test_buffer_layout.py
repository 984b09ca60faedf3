"""Buffers laid out by lifetime: in arenas of the host and of devices, and in devices' workspaces."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ort_sdk.api.buffer_layout import BufferLifetime, lay_out

LIFETIMES = st.lists(
    st.tuples(st.integers(0, 9000), st.integers(0, 20), st.integers(0, 20)).map(
        lambda row: BufferLifetime(row[0], min(row[1:]), max(row[1:]))
    ),
    max_size=30,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LIFETIMES, st.sampled_from([1, 64, 128, 256, 4096]))
def test_buffers_that_live_together_do_not_overlap(buffers, alignment):
    offsets, total = lay_out(buffers, alignment)
    for first, (one, start) in enumerate(zip(buffers, offsets, strict=True)):
        assert start % alignment == 0
        assert start + one.nbytes <= total
        for other, begin in list(zip(buffers, offsets, strict=True))[first + 1 :]:
            together = one.first <= other.last and other.first <= one.last
            apart = start + one.nbytes <= begin or begin + other.nbytes <= start
            assert not together or apart or not one.nbytes or not other.nbytes


def test_buffers_that_never_meet_share_memory():
    offsets, total = lay_out([BufferLifetime(640, 0, 1), BufferLifetime(640, 2, 3), BufferLifetime(64, 1, 2)], 64)
    assert offsets[0] == offsets[1]
    assert total == 704


def test_a_chain_needs_two_places():
    offsets, total = lay_out([BufferLifetime(1024, step, step + 1) for step in range(100)], 128)
    assert total == 2048
    assert set(offsets) == {0, 1024}


def test_no_buffers_need_no_memory():
    assert lay_out([], 64) == ([], 0)
