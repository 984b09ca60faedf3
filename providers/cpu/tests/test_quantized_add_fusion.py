"""8-bit convolutions with a fused addition: the same results as one after the other, and as defined."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.compiled_kernels().is_usable, reason="oneDNN or numba is missing"
)

MICROSOFT = "com.microsoft"
SCALES = {"xs": 0.02, "ys": 0.4973, "zs": 0.3517, "ts": 0.6131}
"""Of X, of the convolution's result, of what is added and of the sum."""
ZEROS = {"xz": 7, "yz": 3, "zz": 9, "tz": 5}


def _model(dtype, kernel, size, *, outputs=72, is_first=True, is_read_twice=False):
    rng = np.random.default_rng(5)
    limits = np.iinfo(dtype)
    channels = 24
    weight = rng.integers(-127, 128, (outputs, channels, kernel, kernel)).astype(np.int8)
    weights = {
        **{name: np.array(value, np.float32) for name, value in SCALES.items()},
        **{name: np.array(value, dtype) for name, value in ZEROS.items()},
        "w": weight,
        "ws": (rng.random(outputs) / 100 + 0.003).astype(np.float32),
        "wz": np.zeros(outputs, np.int8),
        "b": rng.integers(-900, 900, outputs).astype(np.int32),
    }
    feeds = {
        "x": rng.integers(limits.min, limits.max, (2, channels, size, size + 3)).astype(dtype),
        "z": rng.integers(limits.min, limits.max, (2, outputs, size, size + 3)).astype(dtype),
    }
    pads = [kernel // 2] * 4
    conv = helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["c"], pads=pads)
    terms = [["c", "ys", "yz"], ["z", "zs", "zz"]]
    inputs = [name for term in (terms if is_first else terms[::-1]) for name in term]
    nodes = [conv, helper.make_node("QLinearAdd", [*inputs, "ts", "tz"], ["t"], domain=MICROSOFT)]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes.append(helper.make_node("DequantizeLinear", ["t", "ts", "tz"], ["y"]))
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    if is_read_twice:
        results.append(helper.make_tensor_value_info("c", kind, None))
    infos = [helper.make_tensor_value_info(name, kind, array.shape) for name, array in feeds.items()]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "sum", infos, results, constants)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString(), feeds, weights


def _session(model, **config):
    options = ort.SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return ort.InferenceSession(model, options)


def _defined(feeds, weights, kernel, dtype):
    """In float64, with the convolution's result rounded."""
    limits, pad = np.iinfo(dtype), kernel // 2
    x = np.pad(feeds["x"].astype(np.float64) - ZEROS["xz"], ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
    sums = np.einsum("nchwij,mcij->nmhw", windows, weights["w"].astype(np.float64)) + weights["b"][:, None, None]
    scale = SCALES["xs"] * weights["ws"].astype(np.float64) / SCALES["ys"]
    steps = np.clip(np.rint(sums * scale[:, None, None]) + ZEROS["yz"], limits.min, limits.max)
    total = (steps - ZEROS["yz"]) * SCALES["ys"] + (feeds["z"].astype(np.float64) - ZEROS["zz"]) * SCALES["zs"]
    return np.clip(np.rint(total / SCALES["ts"]) + ZEROS["tz"], limits.min, limits.max)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("kernel", "size"), [(1, 14), (3, 9), (1, 40)])
@pytest.mark.parametrize(("is_first", "outputs"), [(True, 64), (False, 72), (True, 27)])
def test_results_are_those_of_two_nodes(dtype, kernel, size, is_first, outputs):
    model, feeds, weights = _model(dtype, kernel, size, outputs=outputs, is_first=is_first)
    fused, stepwise = _session(model), _session(model, session__disable_programs="1")
    expected = stepwise.run(None, feeds)[0]
    for _ in range(4):
        np.testing.assert_array_equal(fused.run(None, feeds)[0], expected)
    steps = expected / np.float32(SCALES["ts"]) + ZEROS["tz"]
    difference = np.abs(np.rint(steps) - _defined(feeds, weights, kernel, dtype))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


def _fused(model, feeds):
    session = _session(model)
    for _ in range(3):
        session.run(None, feeds)
    return [group for row in session.program_report() for group in row.fused]


def test_the_addition_is_part_of_the_convolution_where_nothing_else_reads_its_result():
    model, feeds, _ = _model(np.uint8, 1, 14)
    assert any("QLinearConv" in group for group in _fused(model, feeds))
    model, feeds, _ = _model(np.uint8, 1, 14, is_read_twice=True)
    assert not _fused(model, feeds)
