"""Convolutions fused with the element-wise steps behind them: beside float64, by oneDNN and by Winograd's filtering."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.compiled_kernels().is_usable, reason="oneDNN or numba is not installed"
)

node = helper.make_node


def _scalar(name, value):
    return node("Constant", [], [name], value=numpy_helper.from_array(np.array(value, np.float32)))


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


TAILS = {
    "silu": ([node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["y"])], lambda c, _z: c * _sigmoid(c)),
    "silu and residual": (
        [node("Sigmoid", ["c"], ["s"]), node("Mul", ["s", "c"], ["g"]), node("Add", ["z", "g"], ["y"])],
        lambda c, z: c * _sigmoid(c) + z,
    ),
    "hard swish": ([node("HardSwish", ["c"], ["y"])], lambda c, _z: c * np.clip(c / 6 + 0.5, 0, 1)),
    "hard swish in parts, scaled": (
        [
            *(_scalar(name, value) for name, value in (("three", 3), ("none", 0), ("six", 6), ("factor", 1.7), ("shift", -0.3))),
            node("Add", ["c", "three"], ["a"]),
            node("Clip", ["a", "none", "six"], ["k"]),
            node("Mul", ["c", "k"], ["d"]),
            node("Div", ["d", "six"], ["e"]),
            node("Mul", ["e", "factor"], ["f"]),
            node("Add", ["shift", "f"], ["y"]),
        ],
        lambda c, _z: c * np.clip(c + 3, 0, 6) / 6 * 1.7 - 0.3,
    ),
    "hard sigmoid as gate": (
        [node("HardSigmoid", ["c"], ["h"], alpha=0.25, beta=0.4), node("Mul", ["h", "c"], ["y"])],
        lambda c, _z: c * np.clip(0.25 * c + 0.4, 0, 1),
    ),
    "bounded by numbers": (
        [
            *(_scalar(name, value) for name, value in (("low", -0.4), ("high", 0.9))),
            node("Max", ["c", "low"], ["a"]),
            node("Min", ["high", "a"], ["y"]),
        ],
        lambda c, _z: np.clip(c, -0.4, 0.9),
    ),
    "tanh of a line": (
        [_scalar("two", 2), node("Sub", ["two", "c"], ["a"]), node("Tanh", ["a"], ["y"])],
        lambda c, _z: np.tanh(2 - c),
    ),
    "a value read twice": (
        [node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["m"]), node("Sub", ["m", "c"], ["y"])],
        lambda c, _z: c * _sigmoid(c) - c,
    ),
    "a value handed out": ([node("Sigmoid", ["c"], ["y"]), node("Mul", ["c", "y"], ["other"])], lambda c, _z: _sigmoid(c)),
    "relu of a sum": ([node("Add", ["c", "z"], ["a"]), node("Relu", ["a"], ["y"])], lambda c, z: np.maximum(c + z, 0)),
}
_HARD_SWISH = TAILS["hard swish in parts, scaled"]
FUSED = {"bounded by numbers", "silu", "silu and residual", "hard swish", "hard swish in parts, scaled", "hard sigmoid as gate"}


def _model(tail, kernel, *, group=1, channels=32, outputs=40, opset=20):
    rng = np.random.default_rng(3)
    sizes = (kernel, kernel) if isinstance(kernel, int) else kernel
    scale = np.sqrt(np.prod(sizes) * channels // group)
    weight = (rng.standard_normal((outputs, channels // group, *sizes)) / scale).astype("f")
    bias = rng.standard_normal(outputs).astype(np.float32)
    feeds = {
        "x": rng.standard_normal((2, channels, 14, 17)).astype("f"),
        "z": rng.standard_normal((2, outputs, 14, 17)).astype("f"),
    }
    conv = node("Conv", ["x", "w", "b"], ["c"], group=group, pads=[size // 2 for size in sizes] * 2)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *array.shape[1:]]) for name, array in feeds.items()]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weights = [numpy_helper.from_array(array, name) for name, array in (("w", weight), ("b", bias))]
    graph = helper.make_graph([conv, *tail], "graph", infos, result, weights)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString(), feeds, weight, bias


def _in_float64(x, weight, bias, group):
    taps = weight.shape[2:]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *((size // 2,) * 2 for size in taps)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, taps, axis=(2, 3))
    parts = zip(np.split(windows, group, axis=1), np.split(weight.astype(np.float64), group), strict=True)
    return np.concatenate([np.einsum("nchwij,mcij->nmhw", *part) for part in parts], axis=1) + bias.reshape(-1, 1, 1)


@pytest.mark.parametrize(("kernel", "group", "outputs"), [(3, 1, 40), (1, 1, 40), (5, 1, 40), (3, 32, 32)])
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_tails(tail, kernel, group, outputs, level):
    nodes, reference = TAILS[tail]
    model, feeds, weight, bias = _model(nodes, kernel, group=group, outputs=outputs)
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    expected = reference(_in_float64(feeds["x"], weight, bias, group), feeds["z"])
    for _ in range(4):
        (found,) = session.run(None, feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=5e-6)
    groups = [group for row in session.program_report() for group in row.fused]
    assert any("Conv" in group for group in groups) or tail not in FUSED


def test_windows_along_one_axis_of_a_picture():
    nodes, reference = TAILS["bounded by numbers"]
    model, feeds, weight, bias = _model(nodes, (1, 3))
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    expected = reference(_in_float64(feeds["x"], weight, bias, 1), feeds["z"])
    for _ in range(4):
        np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=5e-6)
    assert any("Conv" in group for row in session.program_report() for group in row.fused)


def test_bounds_that_are_attributes():
    clipped = [node("Clip", ["a"], ["k"], min=0.0, max=6.0) if each.op_type == "Clip" else each for each in _HARD_SWISH[0]]
    model, feeds, weight, bias = _model(clipped, 3, opset=10)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    expected = _HARD_SWISH[1](_in_float64(feeds["x"], weight, bias, 1), feeds["z"])
    for _ in range(4):
        np.testing.assert_allclose(session.run(None, feeds)[0], expected, rtol=1e-5, atol=5e-6)
    assert any({"Conv", "Clip"} <= set(group) for row in session.program_report() for group in row.fused)


def test_shapes_in_turn():
    nodes, reference = TAILS["silu and residual"]
    model, feeds, weight, bias = _model(nodes, 3)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(4):
        for samples in (2, 1):
            part = {name: array[:samples] for name, array in feeds.items()}
            expected = reference(_in_float64(part["x"], weight, bias, 1), part["z"])
            np.testing.assert_allclose(session.run(None, part)[0], expected, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize(("kernel", "group", "outputs"), [(3, 1, 40), (1, 1, 40), (3, 32, 32)])
def test_no_samples(kernel, group, outputs):
    nodes, _ = TAILS["hard swish"]
    model, feeds, *_ = _model(nodes, kernel, group=group, outputs=outputs)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(4):
        assert session.run(None, {name: array[:0] for name, array in feeds.items()})[0].shape == (0, outputs, 14, 17)
