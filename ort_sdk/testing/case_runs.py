"""Running one of ONNX's cases through a session and judging what it gives."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from .cases import ModelCase
from .compare import assert_same

__all__ = ["RUNS", "assert_expected", "check_case", "is_random", "run_repeatedly", "with_constant_inputs"]

RUNS = 3
"""The first is step by step, the second makes a program, the third replays it."""


def is_random(case: ModelCase) -> bool:
    """Whether the expected output is one draw of many: only its type, shape and range can be compared."""
    return case.name.startswith("test_bernoulli")


def assert_expected(case: ModelCase, outputs: list[Any], expected: list[Any]) -> None:
    """Assert that outputs are the case's: count, type, shape, values.

    Raises:
        AssertionError: they are not.
    """
    assert len(outputs) == len(expected), f"{len(outputs)} outputs, expected {len(expected)}"
    for index, (actual, wanted) in enumerate(zip(outputs, expected, strict=True)):
        if is_random(case):
            assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
            assert np.isin(actual, (0, 1)).all()
        else:
            assert_same(actual, wanted, rtol=case.rtol, atol=case.atol, what=f"output {index}")


def check_case(case: ModelCase, session: Any) -> None:
    """Run every data set of a case several times; results must be right, stay right, and leave the feeds alone.

    Raises:
        AssertionError: they are not.
    """
    names, data_sets = case.feed_names(), list(case.data_sets())
    assert data_sets, f"case {case.name} has no data"
    for inputs, expected in data_sets:
        feeds = dict(zip(names, inputs, strict=False))
        before = copy.deepcopy(feeds)
        for outputs in run_repeatedly(session, feeds):
            assert_expected(case, outputs, expected)
        for name, value in feeds.items():
            after = np.asarray(value) if isinstance(value, np.generic) else value
            assert_same(after, before[name], rtol=0, atol=0, what=f"feed '{name}' after the runs")


def run_repeatedly(session: Any, feeds: Mapping[str, Any]) -> list[list[Any]]:
    """Outputs of several runs with the same feeds, all held until the last is done."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # overflow and division by zero are what some cases are about
        return [session.run(None, feeds) for _ in range(RUNS)]


def with_constant_inputs(case: ModelCase) -> bytes | None:
    """The case's model with all inputs but the first made constants; None if it has no others, or they are no tensors."""
    inputs, _ = next(case.data_sets())
    model = onnx.ModelProto.FromString(case.model_bytes())
    names = case.feed_names()
    constants = list(zip(names[1:], inputs[1:], strict=False))
    if not constants or not all(isinstance(value, np.ndarray) and value.dtype.kind not in "OUS" for _, value in constants):
        return None
    kept = [value for value in model.graph.input if value.name not in dict(constants)]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants)
    return bytes(model.SerializeToString())
