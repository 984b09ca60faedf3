"""Memory that was freed goes back to the system when a session has got ready."""

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.memory import freed_memory
from ort_sdk.run.program.cache import ProgramCache

BLOCK_BYTES, BLOCKS = 60_000, 500
"""Of blocks that come from the heap, however large those were that were freed before."""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing is given back on other systems")


def _anonymous_bytes():
    rows = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    return next(int(row.split()[1]) * 1024 for row in rows if row.startswith("Pss_Anon"))


def test_what_is_free_in_the_heap_goes_back():
    if freed_memory._functions() is None:
        pytest.skip("the C library gives nothing back")
    blocks = [np.full(BLOCK_BYTES, 1, np.uint8) for _ in range(BLOCKS)]
    last = np.full(1000, 1, np.uint8)
    before = _anonymous_bytes()
    del blocks
    freed_memory.give_back_freed_memory()
    assert before - _anonymous_bytes() > 0.8 * BLOCK_BYTES * BLOCKS
    assert last.sum() == 1000


def test_little_free_memory_stays(monkeypatch):
    trimmed = []
    monkeypatch.setattr(freed_memory, "_functions", lambda: (lambda: freed_memory.MIN_BYTES - 1, trimmed.append))
    freed_memory.give_back_freed_memory()
    assert not trimmed
    monkeypatch.setattr(freed_memory, "_functions", lambda: (lambda: freed_memory.MIN_BYTES, trimmed.append))
    freed_memory.give_back_freed_memory()
    assert trimmed == [0]


def test_giving_back_periodically_takes_a_fiftieth_of_the_time(monkeypatch):
    now, looks = [100.0], []

    def give_back():
        looks.append(now[0])
        now[0] += 0.01

    monkeypatch.setattr(freed_memory._Schedule, "next_look", 0.0)
    monkeypatch.setattr(freed_memory, "give_back_freed_memory", give_back)
    monkeypatch.setattr(freed_memory.time, "monotonic", lambda: now[0])
    for _ in range(30):
        freed_memory.give_back_periodically()
        now[0] += 0.15
    assert looks == pytest.approx([100.0, 100.61, 101.22, 101.83, 102.44, 103.05, 103.66, 104.27])


def test_a_c_library_that_cannot_is_left_alone(monkeypatch):
    monkeypatch.setattr(freed_memory, "_functions", lambda: None)
    freed_memory.give_back_freed_memory()


def test_sessions_give_back_what_their_first_runs_leave(monkeypatch):
    looks = []
    monkeypatch.setattr(freed_memory, "_functions", lambda: (lambda: looks.append(1) or 0, None))
    monkeypatch.setattr(freed_memory._Schedule, "next_look", float("inf"))
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Neg", ["e"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    model = helper.make_model(helper.make_graph(nodes, "graph", values[:1], values[1:]), ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in (3, 3, 3, 3, 4, 4, 4, 5, 5, 5):
        session.run(None, {"x": np.ones(size, np.float32)})
    # After the first run, and after each that made a program (twice if it was compiled later).
    made = len(session.program_report())
    assert made == 3
    assert 1 + made <= len(looks) <= 1 + 2 * made


def test_memory_goes_back_when_the_first_program_is_made_and_not_when_what_is_left_behind_a_guard_gets_one(monkeypatch):
    events = []
    monkeypatch.setattr(freed_memory._Schedule, "next_look", float("inf"))
    monkeypatch.setattr(freed_memory, "_functions", lambda: (lambda: events.append("look") or 0, None))
    run_rest = ProgramCache._run_continuation

    def noted(*arguments):
        results = run_rest(*arguments)
        events.append("rest")
        return results

    monkeypatch.setattr(ProgramCache, "_run_continuation", noted)
    names = ["x", "places", "a", "b", "c", "y"]
    ends = zip(("NonZero", "Neg", "Sign", "Abs", "Neg"), names[:-1], names[1:], strict=True)
    nodes = [helper.make_node(op_type, [first], [second]) for op_type, first, second in ends]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [1, "m"])
    model = helper.make_model(helper.make_graph(nodes, "graph", [x], [y]), ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for last in (1, 1, 1, 0, 0, 0):
        session.run(None, {"x": np.array([1, 1, last], np.float32)})
    assert events == ["look", "look", *["rest"] * 3]
