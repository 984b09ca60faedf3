"""Runs while others use the processors: on one thread, with the same results, and as before afterwards; the same after a fork."""

import ctypes
import functools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.execution_provider import CpuExecutionProvider
from ort_sdk_cpu.platform import contention, libraries, run_settings, threads

import ort_sdk as ort
from ort_sdk.api import InvalidArgument, RuntimeException

pytestmark = pytest.mark.skipif(not libraries.has_openmp(), reason="no OpenMP library")

PROCESSORS = os.cpu_count() or 1
needs_processors = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2 or len(os.sched_getaffinity(0)) < PROCESSORS, reason="may not use two or more processors"
)
RNG = np.random.default_rng(0)


def _scope(count=2):
    options = {"session.intra_op_num_threads": str(count)}
    return CpuExecutionProvider("CPUExecutionProvider", session_options=options).run_scope()


def _team_size():
    """Threads of a team started now."""
    seen = []
    count = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(threading.get_native_id()))
    ctypes.CDLL(libraries.OPENMP_FILE).GOMP_parallel(count, None, 2, 0)
    return len(seen)


def _model(nodes, inputs, constants):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _convolution(channels, outputs, kernel, *, op="Conv", size=28, **attributes):
    groups = attributes.get("group", 1)
    shape = (outputs, channels // groups, *kernel) if op == "Conv" else (channels, outputs // groups, *kernel)
    weight = RNG.standard_normal(shape) / 8
    return _model([helper.make_node(op, ["x", "w"], ["y"], **attributes)], {"x": (1, channels, size, size)}, {"w": weight})


def _recurrent():
    weights = {"w": RNG.standard_normal((1, 1024, 64)) / 16, "r": RNG.standard_normal((1, 1024, 256)) / 16}
    return _model([helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=256)], {"x": (20, 1, 64)}, weights)


MODELS = {
    "few channels": lambda: _convolution(1, 3, (1, 40), size=64, strides=[1, 5]),
    "pointwise": lambda: _convolution(64, 96, (1, 1)),
    "winograd": lambda: _convolution(32, 64, (3, 3), pads=[1] * 4),
    "strided": lambda: _convolution(32, 64, (3, 3), pads=[1] * 4, strides=[2, 2]),
    "depthwise": lambda: _convolution(64, 64, (5, 5), pads=[2] * 4, group=64),
    "grouped": lambda: _convolution(64, 64, (3, 3), pads=[1] * 4, group=4),
    "transposed": lambda: _convolution(32, 48, (4, 4), op="ConvTranspose", strides=[2, 2]),
    "product": lambda: _model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (70, 384)}, {"w": RNG.random((384, 700))}),
    "pooling": lambda: _model([helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3])], {"x": (1, 64, 40, 40)}, {}),
    "softmax": lambda: _model([helper.make_node("Softmax", ["x"], ["y"])], {"x": (200, 500)}, {}),
    "recurrent": _recurrent,
}


@pytest.mark.parametrize("name", MODELS)
def test_results_are_the_same_on_one_thread_made_for_two_and_back(name, monkeypatch):
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    session = ort.InferenceSession(MODELS[name](), options)
    shape = session.get_inputs()[0].shape
    results = []
    for is_busy in (False, False, False, False, True, True, False, True):
        monkeypatch.setattr(threads, "should_run_serially", lambda _, is_busy=is_busy: is_busy)
        x = np.random.default_rng(len(results) % 2).standard_normal(shape).astype(np.float32)
        results.append(session.run(None, {"x": x})[0])
    for index, result in enumerate(results):
        np.testing.assert_allclose(result, results[index % 2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_busy_first", [False, True])
def test_packed_products_are_the_same_on_one_thread(monkeypatch, is_busy_first):
    if not libraries.onednn().is_usable:
        pytest.skip("no oneDNN")
    from ort_sdk_cpu.gemm.onednn import packed_layout
    from ort_sdk_cpu.memory.workspace import aligned_bytes
    from ort_sdk_cpu.onednn.constants import Argument
    from ort_sdk_cpu.onednn.execution import Execution, reordered
    from ort_sdk_cpu.onednn.memory_descriptor import of_array
    from ort_sdk_cpu.onednn.primitive import matmul

    # oneDNN keeps what it made for shapes of before: each order has shapes of its own.
    columns = 150 + is_busy_first
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((7, 200), (200, columns)))
    out = np.zeros((7, columns), np.float32)
    monkeypatch.setattr(threads, "should_run_serially", lambda _: False)
    with _scope():
        layout = packed_layout(*b.shape)
        primitive = matmul(of_array(a), layout, None, of_array(out))
        packed = reordered(b, of_array(b), layout)
        execution = Execution(primitive, {Argument.SRC: of_array(a), Argument.WEIGHTS: layout, Argument.DST: of_array(out)})
        for argument, array in ((Argument.SRC, a), (Argument.WEIGHTS, packed), (Argument.DST, out)):
            execution.set(argument, array)
    expected = a.astype(np.float64) @ b
    for turn in range(4):
        is_busy = (turn % 2 == 0) == is_busy_first
        monkeypatch.setattr(threads, "should_run_serially", lambda _, is_busy=is_busy: is_busy)
        out[:] = 0
        with _scope():
            execution()
        np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    assert aligned_bytes(1).nbytes == 1


def test_a_primitive_without_a_form_for_one_thread_gets_its_team(monkeypatch):
    monkeypatch.setattr(threads, "should_run_serially", lambda _: True)
    sizes = []
    with _scope():
        sizes.append(_team_size())
        threads.run_with_team(lambda: sizes.append(_team_size()))
        sizes.append(_team_size())
    assert sizes == [1, 2, 1]


def test_teams_are_back_after_a_run_that_failed(monkeypatch):
    monkeypatch.setattr(threads, "should_run_serially", lambda _: True)
    session = ort.InferenceSession(MODELS["softmax"]())
    with pytest.raises(InvalidArgument):
        session.run(None, {"x": np.zeros((200, 500), np.int32)})
    scope = _scope()
    scope.__enter__()
    assert threads.is_serial()
    scope.__exit__(KeyError, KeyError(), None)
    assert not threads.is_serial()
    assert _team_size() == 2


def test_a_run_within_a_run_keeps_to_one_thread(monkeypatch):
    monkeypatch.setattr(threads, "should_run_serially", lambda _: True)
    with _scope():
        monkeypatch.setattr(threads, "should_run_serially", lambda _: False)
        with _scope(), _scope(1):
            assert threads.is_serial()
        assert threads.is_serial()
        assert _team_size() == 1


def test_sessions_of_one_thread_do_not_look(monkeypatch):
    monkeypatch.setattr(threads, "should_run_serially", lambda _: pytest.fail("looked"))
    with _scope(1):
        assert not threads.is_serial()


class _Thread:
    """A thread that is always, or never, running."""

    processor = -1

    def __init__(self, is_running):
        self.is_running = lambda: is_running


def _look(monkeypatch, count=2, **known):
    """What a thread that never looked before finds at first, and later."""
    for name, value in known.items():
        monkeypatch.setattr(contention, name, lambda *_, value=value: value)
    monkeypatch.setattr(contention._local, "state", contention._State())
    found = [contention.should_run_serially(count)]
    for _ in range(2):
        contention._local.state.next_check_ns = 0
        found.append(contention.should_run_serially(count))
    return tuple(found)


ALONE, TOGETHER = (False, True, True), (False, False, False)


@needs_processors
def test_a_team_needs_two_free_processors(monkeypatch):
    look = functools.partial(_look, monkeypatch, _team=(_Thread(False),))
    found = [look(_running_threads=PROCESSORS - free + 1) for free in (2, 1, 0, -3)]
    assert found == [TOGETHER, ALONE, ALONE, ALONE]


@needs_processors
def test_own_threads_that_look_for_work_are_no_others(monkeypatch):
    look = functools.partial(_look, monkeypatch, _running_threads=PROCESSORS)
    assert [look(_team=(_Thread(is_running),)) for is_running in (True, False)] == [TOGETHER, ALONE]


@needs_processors
def test_between_two_looks_nothing_changes(monkeypatch):
    assert _look(monkeypatch, _running_threads=PROCESSORS, _team=(_Thread(False),)) == ALONE
    monkeypatch.setattr(contention, "_running_threads", lambda: 1)
    assert contention.should_run_serially(2)
    contention._local.state.next_check_ns = 0
    assert not contention.should_run_serially(2)


@needs_processors
@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_team_is_taken_off_its_leaders_processor(monkeypatch, is_enabled):
    allowed = os.sched_getaffinity(0)
    own, found = min(allowed), []
    monkeypatch.setattr(contention, "_current_processor", lambda: lambda: own)
    monkeypatch.setattr(contention._affinity, "is_enabled", is_enabled)

    def meet():
        (other,) = contention._team(2)
        os.sched_setaffinity(other.number, {own})
        assert _team_size() == 2
        assert _look(monkeypatch, _running_threads=1) == TOGETHER
        found.append(os.sched_getaffinity(other.number))

    # A thread of its own has a team of its own.
    leader = threading.Thread(target=meet)
    leader.start()
    leader.join()
    assert found == [allowed - {own} if is_enabled else {own}]


def test_large_teams_go_on(monkeypatch):
    assert not any(_look(monkeypatch, contention.LARGEST_TEAM + 1, _running_threads=100 * PROCESSORS, _team=()))


def test_where_the_system_does_not_tell_nobody_is_there(monkeypatch, tmp_path):
    monkeypatch.setattr(contention, "_LOAD", tmp_path / "none")
    contention._load_file.cache_clear()
    try:
        assert contention._running_threads() == 1
        assert _look(monkeypatch) == TOGETHER
    finally:
        contention._load_file.cache_clear()


def test_the_team_is_known_by_its_threads():
    own = threading.get_native_id()
    team = contention._team(3)
    assert len({thread.number for thread in team} - {own}) == 2
    time.sleep(0.2)
    assert not any(thread.is_running() for thread in team)
    assert contention._Thread(own).is_running()


def test_a_team_that_ended_is_found_anew(monkeypatch):
    state = contention._State()
    contention._running_in_team(2, state)
    assert len(state.team) == 1
    monkeypatch.setattr(state.team[0], "is_running", lambda: Path("/none").stat())
    assert contention._running_in_team(2, state) == 0
    assert state.team == ()


@needs_processors
def test_busy_processes_are_seen(monkeypatch):
    script = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nprint(flush=True)\nwhile True: pass"
    children = [
        subprocess.Popen([sys.executable, "-c", script, str(number)], stdout=subprocess.PIPE) for number in range(1, PROCESSORS)
    ]
    try:
        for child in children:
            child.stdout.readline()
        time.sleep(0.05)
        assert _look(monkeypatch) == ALONE
    finally:
        for child in children:
            child.kill()
            child.communicate()


_FORKED = """
import os, sys, threading, numpy as np, ort_sdk as ort
x = np.random.default_rng(0).standard_normal((1, 32, 28, 28)).astype(np.float32)
options = ort.SessionOptions()
options.intra_op_num_threads = 2
session = ort.InferenceSession(sys.argv[1], options)
expected = [session.run(None, {"x": x})[0] for _ in range(4)][-1]
child = os.fork()
if child:
    sys.exit(os.waitpid(child, 0)[1])
own = ort.InferenceSession(sys.argv[1], options)
results = [made.run(None, {"x": x})[0] for made in (session, own) for _ in range(4)]
other = threading.Thread(target=lambda: results.extend(session.run(None, {"x": x})[0] for _ in range(2)))
other.start()
other.join()
os._exit(0 if len(results) == 10 and all(np.allclose(result, expected, atol=1e-5) for result in results) else 1)
"""


@pytest.mark.parametrize("name", ["winograd", "strided"])
def test_a_forked_process_goes_on_without_the_threads_that_stayed(name, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(MODELS[name]())
    subprocess.run([sys.executable, "-c", _FORKED, str(path)], check=True, timeout=120)


def test_a_forked_thread_says_that_it_has_no_team(monkeypatch):
    current = run_settings.RunSettings()
    current.is_forked, current.active_levels = True, 1
    monkeypatch.setattr(run_settings.thread_local, "current", current)
    with pytest.raises(RuntimeException, match="spawn"):
        threads.run_with_team(lambda: None)
