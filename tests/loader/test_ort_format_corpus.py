"""ONNX's backend cases in ORT format, both ways: what onnxruntime writes runs here, what we write runs there, and here."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import ort_sdk
from ort_sdk.api import Fail
from ort_sdk.testing.cases import KINDS, load_cases
from ort_sdk.testing.compare import assert_same
from tests.loader.ort_files import converting_session, quiet_options
from tests.loader.test_ort_format_writer import write

CASES = [case for kind in KINDS for case in load_cases(kind)]
CONVERTED_AT_LEAST = 1600
"""Cases that onnxruntime 1.31 converts; it lacks the newest operators and types, and has no optional values in ORT format."""
OPTIONAL = {
    "test_identity_opt",
    "test_if_opt",
    "test_loop16_seq_none",
    "test_optional_get_element_optional_sequence",
    "test_optional_get_element_optional_tensor",
    "test_optional_has_element_empty_optional_input",
    "test_optional_has_element_optional_input",
    "test_optional_has_element_tensor_input",
}
"""Cases with optional values."""
RANDOM = "test_bernoulli"
HALF_STEP = 2e-3
"""Two steps of float16's last place: nodes that compute in float are rounded where the file's casts are."""
CPU = ["CPUExecutionProvider"]


def source(case):
    return case.model_bytes() if case.source.model is not None else str(case.model_path())


def check(case, session, data_sets, rtol=0.0, atol=0.0):
    for feeds, expected in data_sets:
        for index, (actual, wanted) in enumerate(zip(session.run(None, feeds), expected, strict=True)):
            if case.name.startswith(RANDOM):
                assert (actual.dtype, actual.shape) == (wanted.dtype, wanted.shape)
                continue
            is_half = getattr(wanted, "dtype", None) == np.float16
            tolerance = HALF_STEP if is_half else 0.0
            limits = max(case.rtol, rtol, tolerance), max(case.atol, atol, tolerance)
            assert_same(actual, wanted, rtol=limits[0], atol=limits[1], what=f"output {index}")


def data_sets_of(case):
    """Feeds and expected outputs; scalars as arrays, since onnxruntime takes no others."""
    return [(dict(zip(case.feed_names(), map(_fed, inputs), strict=True)), outputs) for inputs, outputs in case.data_sets()]


def _fed(value):
    return np.asarray(value) if isinstance(value, np.generic) else value


def convert_and_run(case, target, data_sets):
    """Let onnxruntime write the model in ORT format, and run it.

    Returns:
        Feeds and results; None if it cannot load the model, or take arrays of the inputs' types.
    """
    try:
        session = converting_session(source(case), target)
        return [(feeds, session.run(None, feeds)) for feeds, _ in data_sets]
    except Exception:  # noqa: BLE001 - its errors have no base class
        return None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case, tmp_path):
    theirs, ours, data_sets = tmp_path / "theirs.ort", tmp_path / "ours.ort", data_sets_of(case)
    expected = convert_and_run(case, theirs, data_sets)
    if theirs.exists():
        check(case, ort_sdk.InferenceSession(theirs, providers=CPU), data_sets)
    if case.name in OPTIONAL:
        with pytest.raises(Fail, match=r"of type optional\(.*, which ORT format has no form for"):
            write(source(case), ours)
        return
    write(source(case), ours)
    check(case, ort_sdk.InferenceSession(ours, providers=CPU), data_sets)
    if theirs.exists():
        there = onnxruntime.InferenceSession(str(ours), quiet_options(), providers=CPU)
        check(case, there, [] if expected is None else expected, 1e-4, 1e-5)


def test_most_cases_are_in_both_runtimes(tmp_path):
    """So that the test above tests something."""
    for index, case in enumerate(CASES):
        convert_and_run(case, tmp_path / f"{index}.ort", ())
    assert len(list(tmp_path.iterdir())) >= CONVERTED_AT_LEAST
