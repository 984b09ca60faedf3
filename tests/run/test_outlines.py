"""Outlines have what making a program needs of arrays."""

import numpy as np
import pytest

from ort_sdk.run.program.tracing.lifetimes import Lifetimes
from ort_sdk.run.program.tracing.outlines import SMALLEST_OUTLINED_BYTES, Outlines

BASE = np.arange(3 * 64 * 80, dtype=np.float32).reshape(3, 64, 80)


@pytest.mark.parametrize(
    "value", [BASE, BASE.transpose(1, 2, 0), BASE[:, ::-1], BASE[1:, 3:, ::2], BASE[:0], BASE.view(np.int16)], ids=range(6)
)
def test_an_outline_is_as_its_array_but_for_the_contents(value):
    outlines = Outlines()
    outlines.draw(1, BASE, [])
    outlines.draw(2, value, [(1, BASE)])
    outline = outlines.of(2)
    if not value.size:
        # It shares memory with nothing.
        assert outline.shape == value.shape
        return
    assert (outline.shape, outline.dtype, outline.strides) == (value.shape, value.dtype, value.strides)
    assert np.may_share_memory(outline, outlines.of(1))
    assert not np.may_share_memory(outline, BASE)
    assert not outline.any()
    assert not outline.flags.writeable


def test_arrays_in_the_same_memory_one_after_the_other_have_separate_outlines():
    outlines = Outlines()
    outlines.draw(1, BASE, [])
    outlines.draw(2, BASE, [])
    assert not np.may_share_memory(outlines.of(1), outlines.of(2))


def test_little_memory_and_views_of_what_has_no_outline_stay():
    outlines = Outlines()
    outlines.draw(1, np.empty(SMALLEST_OUTLINED_BYTES - 1, np.uint8), [])
    outlines.draw(2, BASE[1:], [(0, BASE)])
    assert outlines.of(1) is None
    assert outlines.of(2) is None


def test_a_value_lasts_as_long_as_names_and_sequences_hold_it():
    lifetimes = Lifetimes()
    lifetimes.name(5, 1)
    lifetimes.join(6, (1, 2))
    assert lifetimes.end(1) == []
    assert lifetimes.end(1) == []
    assert lifetimes.end(5) == []
    assert lifetimes.end(6) == [6, 1]
    assert lifetimes.end(2) == [2]


def test_what_is_forgotten_holds_nothing():
    lifetimes = Lifetimes()
    lifetimes.name(5, 1)
    lifetimes.name(10, 1)
    lifetimes.join(11, (1,))
    lifetimes.end(10)
    lifetimes.forget_from(10)
    assert lifetimes.end(1) == []
    assert lifetimes.end(5) == [1]
