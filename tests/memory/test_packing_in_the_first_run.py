"""Kernels that declare ``packs_in_first_run``: nothing is packed before a run, then once, and files are served as before."""

import gc
import threading

import numpy as np
import pytest

import ort_sdk
from ort_sdk import PrepackedWeightsContainer
from ort_sdk.api import NOT_PACKED
from ort_sdk.testing.collection import only_new_objects
from tests.memory.models import WEIGHT, X, branching_model, close_to, product_model, run
from tests.memory.packing import PackingMatMul
from tests.memory.test_saved_prepacked import SAVE


@pytest.fixture(autouse=True)
def _in_first_run(monkeypatch):
    monkeypatch.setattr(PackingMatMul, "packs_in_first_run", True)


def test_a_session_that_is_not_run_packs_nothing(provider, start, model_path):
    session = start(model_path)
    assert provider.packed == 0
    for _ in range(4):  # step by step, then by a program
        close_to(run(session), X @ WEIGHT)
    assert provider.packed == 1


def test_sessions_share(provider, start, model_path):
    first, second = start(model_path), start(model_path)
    for session in (first, second):
        close_to(run(session), X @ WEIGHT)
    assert provider.packed == 1
    a, b = (kernel.packed[1] for kernel in provider.kernels)
    assert a.ctypes.data == b.ctypes.data


def test_first_runs_at_the_same_time_pack_once(provider, start, model_path):
    sessions = [start(model_path), start(model_path)]
    barrier, failures = threading.Barrier(8), []

    def first_run(session):
        barrier.wait()
        try:
            close_to(run(session), X @ WEIGHT)
        except BaseException as error:  # noqa: BLE001 - told to the test's thread
            failures.append(error)

    threads = [threading.Thread(target=first_run, args=(sessions[number % 2],)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert provider.packed == 1


def test_a_branch_packs_when_it_is_taken(provider, start):
    session = start(branching_model().SerializeToString())
    close_to(run(session, flag=np.array(True)), X @ WEIGHT * 2)
    before = provider.packed
    close_to(run(session, flag=np.array(False)), np.zeros_like(X @ WEIGHT))
    assert before == 1
    assert provider.packed == 2


def test_what_is_not_packed_is_read(provider, start, model_path, monkeypatch):
    monkeypatch.setattr(PackingMatMul, "prepack", lambda *_: NOT_PACKED)
    session = start(model_path)
    for _ in range(4):
        close_to(run(session), X @ WEIGHT)


def test_an_error_is_the_runs_and_the_next_one_tries_again(provider, start, model_path):
    def refuse(_tensor):
        raise RuntimeError("no memory to pack")

    session = start(model_path)
    provider.on_pack = refuse
    with pytest.raises(RuntimeError, match="no memory to pack"):
        run(session)
    provider.on_pack = None
    close_to(run(session), X @ WEIGHT)


def test_memory_that_its_owner_may_write_is_packed_at_creation(provider, start):
    weight = np.array(WEIGHT)
    options = ort_sdk.SessionOptions()
    options.add_initializer("w", ort_sdk.OrtValue.ortvalue_from_numpy(weight))
    session = start(product_model().SerializeToString(), options=options)
    assert provider.packed == 1
    weight[:] = 0
    close_to(run(session), X @ WEIGHT)


def test_the_plan_lets_go_of_what_is_packed(start, model_path):
    session = start(model_path)
    constants = session._state.plan.constants
    indices = list(constants)
    assert len(constants.sources()) == len(indices) == 1
    close_to(run(session), X @ WEIGHT)
    assert not constants.sources()
    assert list(constants) == indices


@pytest.mark.parametrize("place", ["container", "folder", "model"])
@only_new_objects()
def test_what_is_kept_is_packed_at_creation(provider, start, model_path, tmp_path, place):
    options, more = ort_sdk.SessionOptions(), {}
    if place == "container":
        more = {"prepacked_weights_container": PrepackedWeightsContainer()}
    elif place == "folder":
        options.add_session_config_entry("session.prepack_cache_dir", str(tmp_path / "cache"))
    else:
        for key, value in SAVE.items():
            options.add_session_config_entry(key, str(value))
        options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    start(model_path, options=options, **more)
    assert provider.packed == 1
    if place == "model":
        del provider.kernels[:]
        gc.collect()
        close_to(run(start(tmp_path / "saved.onnx")), X @ WEIGHT)
        assert provider.packed == 1
