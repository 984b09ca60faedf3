"""ONNX's float cases in float16 on each platform's device, beside the CPU provider in float64 on the same rounded inputs."""

import zlib

import numpy as np
import onnx
import pytest

import ort_sdk as ort
from ort_sdk.testing.cases import load_cases
from ort_sdk.testing.retyped import as_double, double_model

pytestmark = pytest.mark.opencl
HALF = onnx.TensorProto.FLOAT16
ONE_IN = 16
"""Of so many cases one runs by default, all with ``-m slow``."""


def half_model(case):
    """The case's model in float16, and in float64, with the indices of what is; None if it has no such types."""
    found = double_model(case)
    if found is None:
        return None
    wide, inputs, outputs = found
    model = onnx.ModelProto.FromString(wide)
    for index, value in enumerate(model.graph.input):
        if index in inputs:
            value.type.tensor_type.elem_type = HALF
    for index, value in enumerate(model.graph.output):
        if index in outputs:
            value.type.tensor_type.elem_type = HALF
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return model.SerializeToString(), wide, inputs, outputs


CASES = {case.name: case for case in load_cases("node") if half_model(case) is not None}


def pytest_generate_tests(metafunc):
    chosen = {name for name in CASES if zlib.crc32(name.encode()) % ONE_IN == 0}
    names = [name if name in chosen else pytest.param(name, marks=pytest.mark.slow) for name in sorted(CASES)]
    metafunc.parametrize("name", names)


def test_a_float_case_in_half(name, providers):
    case = CASES[name]
    model, wide, inputs, outputs = half_model(case)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=providers)
    reference = ort.InferenceSession(wide, options, providers=["CPUExecutionProvider"])
    for given, _ in case.data_sets():
        with np.errstate(over="ignore"):
            rounded = [value.astype(np.float16) if index in inputs else value for index, value in enumerate(given)]
        wanted = reference.run(None, dict(zip(case.feed_names(), as_double(rounded, inputs), strict=False)))
        feeds = dict(zip(case.feed_names(), rounded, strict=False))
        for _ in range(3):
            for index, (actual, want) in enumerate(zip(session.run(None, feeds), wanted, strict=True)):
                assert actual.shape == want.shape
                if index not in outputs:
                    # statistics stay float; indices and masks are exact
                    rtol = 2.0**-20 if actual.dtype == np.float32 else 0
                    np.testing.assert_allclose(actual.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=rtol)
                    continue
                assert actual.dtype == np.float16
                with np.errstate(over="ignore"):
                    rounded_want = want.astype(np.float16).astype(np.float64)
                # a unit in the last place of the largest value, as sums of rounded products are off by
                atol = 2.0**-10 * np.abs(rounded_want[np.isfinite(rounded_want)]).max(initial=0)
                np.testing.assert_allclose(actual.astype(np.float64), rounded_want, rtol=2.0**-9, atol=atol)
