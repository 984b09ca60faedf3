"""Times of steps add up to those of runs that nobody watches."""

from ort_sdk.cli.profile import OUTSIDE, _Recorder, _rows

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
    assert rows[-1]["ms"] == 0
    assert rows[0]["operator"] == "MatMul"


def test_the_rest_of_a_run_is_told():
    rows = _summed({"MatMul": [9_000_000, 100]}, total=10_000_000)
    assert [(row["operator"], row["percent"]) for row in rows] == [("MatMul", 90), (OUTSIDE, 10)]
