"""Times of steps add up to those of runs without an observer."""

import time
from types import SimpleNamespace

import pytest

from ort_sdk.cli.commands.profile import OUTSIDE, _Recorder, _rows

NAMES = ["operator", "provider"]
RUNS = 10


def _summed(totals, total):
    recorder = _Recorder(by_node=False, totals={(name, "CPU"): times for name, times in totals.items()})
    return _rows(NAMES, recorder, total, RUNS)


def test_what_watching_takes_is_taken_off_each_call():
    rows = _summed({"MatMul": [9_000_000, 100], "Add": [3_000_000, 300]}, total=11_000_000)
    assert [(row["operator"], row["ms"]) for row in rows] == [("MatMul", 0.875), ("Add", 0.225)]
    assert sum(row["percent"] for row in rows) == 100


def test_no_step_takes_less_than_nothing():
    rows = _summed({"MatMul": [9_000_000, 1], "Add": [10, 99]}, total=8_000_000)
    assert 0 < rows[-1]["ms"] <= 10 / RUNS / 1e6
    assert rows[0]["operator"] == "MatMul"
    assert sum(row["percent"] for row in rows) == pytest.approx(100)


def test_what_bodies_take_is_taken_off_once():
    recorder = _Recorder(by_node=False)
    origin, hour = time.perf_counter_ns(), 3_600_000_000_000
    noted = [("Exp", 0, 90), ("Less", 210, 5), ("MatMul", 300, 50), ("Add", 400, 20), ("If", 250, hour), ("Loop", 200, 2 * hour)]
    for _ in range(2):
        recorder.start_run()
        for operator, begin, duration in noted:
            step = SimpleNamespace(node="", domain="", op_type=operator, provider="CPU")
            recorder.add_without_bodies(step, origin + begin, duration)
    test_ns = time.perf_counter_ns() - origin
    own = {key[0]: nanoseconds for key, (nanoseconds, _) in recorder.totals.items()}
    assert {name: own.pop(name) for name in ("Exp", "MatMul", "Add", "Less")} == {
        "Exp": 180,
        "MatMul": 100,
        "Add": 40,
        "Less": 10,
    }
    # What is inside takes until it was noted: at most as long as the test, for each of two steps in two runs.
    assert {name: round(nanoseconds / hour) for name, nanoseconds in own.items()} == {"If": 2, "Loop": 4}
    assert all(round(nanoseconds / hour) * hour - 4 * test_ns <= nanoseconds for nanoseconds in own.values())


def test_the_remaining_time_of_a_run_has_a_row():
    rows = _summed({"MatMul": [9_000_000, 100]}, total=10_000_000)
    assert [(row["operator"], row["percent"]) for row in rows] == [("MatMul", 90), (OUTSIDE, 10)]
