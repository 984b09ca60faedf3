"""MaxPool and AveragePool of contiguous NCHW and NCDHW, beside onnxruntime: in the first runs and by programs."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.platform import libraries

from ort_sdk import InferenceSession

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba is not installed")

RUNS = 4
CASES = {
    "halves": ((1, 8, 14, 14), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "stride 2": ((2, 5, 33, 41), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "many threads": ((1, 64, 56, 56), {"kernel_shape": [5, 5], "pads": [2, 2, 2, 2]}),
    "stride 3": ((1, 3, 20, 19), {"kernel_shape": [2, 3], "strides": [1, 3], "pads": [0, 1, 1, 2]}),
    "rounded up": ((1, 9, 17, 17), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "same": ((1, 9, 31, 18), {"kernel_shape": [3, 2], "strides": [3, 1], "auto_pad": "SAME_UPPER"}),
    "larger than the image": ((1, 7, 10, 9), {"kernel_shape": [13, 13], "pads": [6, 6, 6, 6]}),
    "behind the image": ((1, 7, 10, 9), {"kernel_shape": [40, 30], "strides": [40, 30], "pads": [0, 1, 0, 1], "ceil_mode": 1}),
    "lines": ((3, 1, 9, 200), {"kernel_shape": [1, 7], "strides": [1, 2], "pads": [0, 3, 0, 3]}),
    "whole": ((1, 8, 8, 8), {"kernel_shape": [8, 8]}),
    "signal": ((2, 4, 100), {"kernel_shape": [3], "strides": [2]}),
    "volume": ((2, 3, 7, 20, 19), {"kernel_shape": [3, 3, 3], "strides": [2, 2, 2], "pads": [1, 1, 1, 1, 1, 1]}),
    "flat film": ((1, 5, 4, 9, 40), {"kernel_shape": [1, 3, 2], "strides": [1, 1, 3], "pads": [0, 1, 0, 0, 1, 1]}),
    "film rounded up": ((1, 2, 8, 8, 8), {"kernel_shape": [3, 2, 3], "strides": [2, 3, 2], "ceil_mode": 1}),
    "padded signal": ((2, 4, 100), {"kernel_shape": [4], "strides": [4], "pads": [1, 2]}),
}
DILATED = [
    ((1, 16, 25, 25), {"kernel_shape": [3, 3], "dilations": [2, 3], "pads": [2, 2, 2, 2]}),
    ((1, 2, 9, 10, 25), {"kernel_shape": [3, 2, 3], "dilations": [2, 3, 1], "pads": [2, 1, 0, 2, 1, 0]}),
]


@pytest.fixture(autouse=True)
def _tasks_for_few_elements(monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.kernel.task_writer.MIN_ELEMENTS", 1)


def model_of(op_type, shape, attributes, *, between):
    nodes = [helper.make_node(op_type, ["a" if between else "x"], ["b" if between else "y"], **attributes)]
    if between:
        nodes = [helper.make_node("Abs", ["x"], ["a"]), *nodes, helper.make_node("Neg", ["b"], ["y"])]
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def check(op_type, shape, attributes, *, between):
    model = model_of(op_type, shape, attributes, between=between)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    session = InferenceSession(model)
    for _ in range(RUNS):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("between", [False, True])
def test_the_maximum_of_windows(name, between):
    check("MaxPool", *CASES[name], between=between)


@pytest.mark.parametrize("case", DILATED, ids=["image", "volume"])
@pytest.mark.parametrize("between", [False, True])
def test_the_maximum_of_windows_with_gaps(between, case):
    check("MaxPool", *case, between=between)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("include_pad", [0, 1])
def test_the_mean_of_windows(name, between, include_pad):
    shape, attributes = CASES[name]
    check("AveragePool", shape, {**attributes, "count_include_pad": include_pad}, between=between)


@pytest.mark.parametrize("stride", [1, 3])
def test_nan_is_larger_than_any_number_and_infinities_count(stride):
    x = np.full((1, 2, 12, 40), -np.inf, np.float32)
    x[0, 0, 5, 17], x[0, 1, 2, 30], x[0, 1, 9, 3] = np.nan, np.inf, 4
    attributes = {"kernel_shape": [3, 3], "strides": [1, stride], "pads": [1, 1, 1, 1]}
    model = model_of("MaxPool", x.shape, attributes, between=False)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, :, ::stride]
    session = InferenceSession(model)
    for _ in range(RUNS):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], windows.max(axis=(-1, -2)))
