"""The cyclic garbage collector rests while sessions are made, and works as before afterwards."""

import gc
import os
import threading
import weakref

import pytest

import ort_sdk
from ort_sdk.api import OrtSdkError
from ort_sdk.session.stages.gc_pause import CollectionPause
from tests.memory.models import product_model


@pytest.fixture(autouse=True)
def _collector():
    was_enabled = gc.isenabled()
    gc.enable()
    yield
    (gc.enable if was_enabled else gc.disable)()


def test_it_ends_with_the_last_thread():
    pause, inside, leave = CollectionPause(), threading.Event(), threading.Event()

    def other():
        with pause:
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with pause, pause:
        thread.start()
        inside.wait()
        assert not gc.isenabled()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    with CollectionPause():
        assert not gc.isenabled()
    assert not gc.isenabled()


def test_an_error_ends_it():
    with pytest.raises(ZeroDivisionError), CollectionPause():
        raise ZeroDivisionError
    assert gc.isenabled()


@pytest.mark.parametrize("content", [product_model().SerializeToString(), b"no model"])
def test_sessions_leave_it_on(content):
    try:
        ort_sdk.InferenceSession(content, providers=["CPUExecutionProvider"])
    except OrtSdkError:
        assert content == b"no model"
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_forked_process_collects():
    from ort_sdk.session.stages.gc_pause import gc_pause

    with gc_pause:
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert gc.isenabled()


def test_what_was_made_during_the_pause_is_not_scanned_afterwards():
    generations = []

    def watch(phase, info):
        generations.append((phase, info["generation"]))

    with CollectionPause():
        made = [[] for _ in range(100_000)]
        gc.callbacks.append(watch)
    more = [[] for _ in range(10)]
    gc.callbacks.remove(watch)
    assert generations == []
    assert len(made) + len(more) == 100_010
    assert all(each is not made[0] for each in gc.get_objects(generation=0))


def test_cycles_made_during_the_pause_are_found():
    class Owner:
        pass

    with CollectionPause():
        owner = Owner()
        owner.self = owner
        found = weakref.ref(owner)
        del owner
    gc.collect()
    assert found() is None


def test_what_the_program_froze_stays_frozen():
    kept = []
    gc.freeze()
    try:
        assert all(each is not kept for each in gc.get_objects())
        with CollectionPause():
            pass
        # Not by their number: others of what is frozen may end with a thread meanwhile.
        assert all(each is not kept for each in gc.get_objects())
    finally:
        gc.unfreeze()
    assert any(each is kept for each in gc.get_objects())
