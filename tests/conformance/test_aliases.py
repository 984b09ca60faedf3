"""Kernels share memory only where their definitions say so: programs rely on it to use buffers again."""

import numpy as np
import pytest

import ort_sdk as ort
from ort_sdk.api import OrtSdkError
from ort_sdk.plan import ABSENT
from ort_sdk.testing.cases import load_cases

CASES = {case.name: case for case in load_cases("node")}


def _session(case):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(case.model_bytes(), options, providers=["CPUExecutionProvider"])


def _arrays(value):
    if isinstance(value, list):
        return [array for each in value for array in _arrays(each)]
    return [value] if isinstance(value, np.ndarray) and value.size else []


def _share_memory(first, second):
    return any(np.shares_memory(a, b) for a in _arrays(first) for b in _arrays(second))


def _undeclared(plan, feeds):
    """Operator, input and output of each step whose output shares memory with an input, and which does not say so."""
    frame = plan.new_frame()
    for feed in plan.feeds:
        value = feeds.get(feed.name)
        frame[feed.index] = np.asarray(value) if isinstance(value, np.generic) else value
    found = []
    for step in plan.steps:
        inputs = [frame[index] for index in step.inputs]
        with np.errstate(all="ignore"):
            result = step.compute(*inputs)
        results = result if isinstance(result, tuple) else (result,)
        for target, (index, value) in enumerate(zip(step.outputs, results, strict=False)):
            frame[index] = np.asarray(value) if isinstance(value, np.generic) else value
            declared = [inputs[source] for source, place in step.aliases if place == target and source < len(inputs)]
            sharing = [source for source, given in enumerate(inputs) if index != ABSENT and _share_memory(given, value)]
            found += [(step.op_type, source, target) for source in sharing if not _share_memory(inputs[source], declared)]
        frame[ABSENT] = None
    return found


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_output_shares_memory_only_where_it_is_declared(name):
    case = CASES[name]
    try:
        session = _session(case)
    except OrtSdkError as error:
        pytest.skip(f"has no session: {error.text[:80]}")
    for inputs, _ in case.data_sets():
        feeds = dict(zip([argument.name for argument in session.get_inputs()], inputs, strict=False))
        assert _undeclared(session._state.plan, feeds) == []
