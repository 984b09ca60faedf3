"""Sessions of ONNX's cases and of small models of real architectures: dropped, they leave nothing to the garbage collector."""

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest

import ort_sdk
from ort_sdk.api import OrtSdkError
from ort_sdk.testing.case_runs import with_constant_inputs
from ort_sdk.testing.cases import load_cases
from ort_sdk.testing.garbage import assert_no_garbage
from tests.lifetime.sessions import RUNS, opened
from tests.models.test_models import DATA, FEEDS, QUANTIZED_FEEDS

CASES = [case for kind in ("node", "simple") for case in load_cases(kind)]
EVERY = 16
"""Of so many cases one is looked at by default."""
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


def use(session, feeds):
    """Run it as often as it takes to replay programs; a case that fails leaves as little."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for feed in feeds:
            for _ in range(RUNS):
                session.run(None, feed)


def check_cases(cases):
    for case in cases:
        inputs = [given for given, _ in case.data_sets()]
        names = case.feed_names()
        models = [(case.model_bytes(), [dict(zip(names, given, strict=False)) for given in inputs])]
        constant = with_constant_inputs(case)
        if constant is not None:
            models.append((constant, [dict(zip(names[:1], inputs[0], strict=False))]))

        def run(models=models):
            for model, feeds in models:
                try:
                    use(opened(model), feeds)
                except OrtSdkError:
                    continue

        assert_no_garbage(run, case.name)


def test_some_cases():
    check_cases(CASES[::EVERY])


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1, EVERY))
def test_all_cases(start):
    check_cases(CASES[start::EVERY])


@pytest.mark.parametrize("name", [*FEEDS, *QUANTIZED_FEEDS])
def test_models(name):
    feeds = {**FEEDS, **QUANTIZED_FEEDS}[name]
    assert_no_garbage(lambda: use(opened(DATA / f"{name}.onnx"), feeds), name)


def test_digits():
    feeds = [{"image": np.zeros((count, 1, 8, 8), np.float32)} for count in (1, 3)]
    name = opened(DIGITS).get_inputs()[0].name
    assert_no_garbage(lambda: use(opened(DIGITS), [{name: feed["image"]} for feed in feeds]), "digits")


@pytest.mark.slow
def test_recurrent_layers_as_loops():
    package = importlib.util.find_spec("piper_phonemize")
    if package is None or package.origin is None:
        pytest.skip("piper-phonemize is not installed; its wheels are for Linux and Python up to 3.11")
    path = Path(package.origin).with_name("libtashkeel_model.ort")
    feeds = [{"embedding_7_input": np.ones((1, 315), np.float32)}]
    assert_no_garbage(lambda: use(opened(path), feeds), "libtashkeel")


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_ALL"])
def test_optimization_levels(level):
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = getattr(ort_sdk.GraphOptimizationLevel, level)
    feeds = FEEDS["control_flow_opset13"]
    assert_no_garbage(lambda: use(opened(DATA / "control_flow_opset13.onnx", options), feeds), level)
