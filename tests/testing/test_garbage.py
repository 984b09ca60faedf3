"""The helper that looks at what is left for the garbage collector, on cycles made on purpose."""

import gc

import numpy as np
import pytest

from ort_sdk.api import OpKernel
from ort_sdk.testing.garbage import assert_no_garbage, is_through_ours, shortest_cycles, still_there


class Keeping(OpKernel):
    """Keeps a method of its own."""

    def __init__(self):
        self.write = self.compute

    def compute(self, *inputs):
        return inputs


Keeping.__module__ = "ort_sdk.somewhere"


class Plain:
    """Of no package of ours."""


def test_nothing_is_left():
    assert_no_garbage(OpKernel, "a kernel")


def test_the_shortest_cycle_is_shown():
    with pytest.raises(AssertionError, match=r"Keeping left something(.|\n)*cycle: .*Keeping.*compute.* → …"):
        assert_no_garbage(Keeping, "Keeping")


def test_what_a_cycle_of_others_holds_counts():
    def hold(held):
        plain = Plain()
        plain.self, plain.held = plain, held

    assert_no_garbage(lambda: hold(np.zeros(3)), "a small array")
    for held in (np.zeros(1 << 12), Keeping):
        with pytest.raises(AssertionError, match="left something"):
            assert_no_garbage(lambda held=held: hold(held() if callable(held) else held), "a cycle")


def test_what_happens_once_does_not_count():
    made = []

    def once():
        if not made:
            made.append(True)
            Keeping()

    assert_no_garbage(once, "the first call")


def test_what_is_still_there():
    kept = []

    def keep():
        kept.append(OpKernel())
        assert still_there(OpKernel) == kept[-1:]

    assert_no_garbage(keep, "a kernel that is kept")


def test_the_collector_is_as_it_was():
    for enable in (gc.disable, gc.enable):
        enable()
        before = gc.isenabled(), gc.get_debug(), gc.get_freeze_count()
        with pytest.raises(ZeroDivisionError):
            assert_no_garbage(lambda: 1 / 0, "an error")
        assert (gc.isenabled(), gc.get_debug(), gc.get_freeze_count()) == before
        assert not gc.garbage


def test_cycles_through_tests_are_theirs():
    kernel = Keeping()
    assert shortest_cycles([kernel.write, kernel], is_through_ours)
    assert not shortest_cycles([kernel.write, kernel], lambda cycle: is_through_ours([*cycle, Keeping]))
    kernel.write = None
