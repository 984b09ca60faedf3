"""ONNX's own backend cases through InferenceSession, at every optimization level, step by step and replayed.

Levels that leave the same graph are run once: nothing behind the optimizer knows of the level.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest

import ort_sdk as ort
from ort_sdk.testing.cases import KINDS, load_cases
from ort_sdk.testing.compare import assert_same
from tests.models_for_tests import optimized_graph

CASES = [case for kind in KINDS for case in load_cases(kind)]
RUNS = 3  # the first is step by step, the second makes the program, the third replays it
LEVELS = [
    ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
]


def _expected_failures():
    rows = {}
    for line in (Path(__file__).parent / "expected_failures.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(":")
            rows[name.strip()] = reason.strip()
    return rows


EXPECTED_FAILURES = _expected_failures()


def _parameters():
    for case in CASES:
        marks = [pytest.mark.xfail(reason=EXPECTED_FAILURES[case.name], strict=True)] if case.name in EXPECTED_FAILURES else []
        yield pytest.param(case, id=case.name, marks=marks)


def test_the_corpus_is_whole():
    assert len(CASES) >= 2033


def test_expected_failures_name_cases_and_give_reasons():
    names = {case.name for case in CASES}
    assert len(EXPECTED_FAILURES) <= 10
    for name, reason in EXPECTED_FAILURES.items():
        assert name in names
        assert len(reason) > 20


def _feed_names(model_bytes):
    graph = onnx.ModelProto.FromString(model_bytes).graph
    constants = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in constants]


def _check(case, outputs, expected):
    assert len(outputs) == len(expected)
    for index, (actual, wanted) in enumerate(zip(outputs, expected, strict=True)):
        if case.name.startswith("test_bernoulli"):  # unseeded draws
            assert actual.shape == wanted.shape
            assert actual.dtype == wanted.dtype
            assert np.isin(actual, (0, 1)).all()
        else:
            assert_same(actual, wanted, rtol=case.rtol, atol=case.atol, what=f"output {index}")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # overflow and division by zero are what some cases are about
@pytest.mark.parametrize("case", list(_parameters()))
def test_case(case):
    model_bytes = case.model_bytes()
    names = _feed_names(model_bytes)
    data_sets = list(case.data_sets())
    assert data_sets
    seen = set()
    for level in LEVELS:
        options = ort.SessionOptions()
        options.graph_optimization_level = level
        session = ort.InferenceSession(model_bytes, options, providers=["CPUExecutionProvider"])
        graph = optimized_graph(session)
        if graph in seen:
            continue
        seen.add(graph)
        for inputs, expected in data_sets:
            for _ in range(RUNS):
                _check(case, session.run(None, dict(zip(names, inputs, strict=False))), expected)
