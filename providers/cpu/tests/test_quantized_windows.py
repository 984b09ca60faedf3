"""Average pooling of 8-bit images, and quantization to 16 bits, beside onnxruntime: in the first run and by programs."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from ort_sdk_cpu.platform import libraries

from ort_sdk import InferenceSession

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba is not installed")

RUNS = 4
BYTES, WORDS = (np.uint8, np.int8), (np.uint16, np.int16)


def results_of(nodes, x, constants, out_dtype):
    """Ours of several runs, and onnxruntime's."""
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in (x.dtype, out_dtype)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kinds[0], x.shape)],
        [helper.make_tensor_value_info("y", kinds[1], None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    session = InferenceSession(model)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    return [session.run(None, {"x": x})[0] for _ in range(RUNS)], expected


POOLS = {
    "halves": ((2, 24, 12, 14), {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "padded": ((1, 37, 11, 13), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "padding counts": ((1, 37, 11, 13), {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2], "count_include_pad": 1}),
    "whole": ((1, 64, 25, 5), {"kernel_shape": [25, 5]}),
    "rounded up": ((1, 16, 7, 9), {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
    "signal": ((2, 32, 40), {"kernel_shape": [4], "strides": [3]}),
}


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("is_last", [False, True])
def test_means_of_windows(name, dtype, is_last):
    shape, attributes = POOLS[name]
    limits = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)
    zeros = {"z": dtype(3), "w": dtype(limits.max // 2)}
    constants = {"s": np.float32(0.02137), "t": np.float32(0.01391), **zeros}
    pooled = helper.make_node("QLinearAveragePool", ["a", "s", "z", "t", "w"], ["y"], domain="com.microsoft", **attributes)
    # A convolution gives channels last.
    constants |= {"f": np.eye(shape[1], dtype=np.int8).reshape(shape[1], shape[1], *[1] * (len(shape) - 2)), "o": np.int8(0)}
    constants |= {"u": np.float32(1)}
    convolved = helper.make_node("QLinearConv", ["x", "s", "z", "f", "u", "o", "s", "z"], ["a"])
    nodes = [convolved if is_last else helper.make_node("Identity", ["x"], ["a"]), pooled]
    found, expected = results_of(nodes, x, constants, dtype)
    for result in found:
        difference = np.abs(result.astype(np.int64) - expected)
        assert difference.max() <= 1
        assert (difference > 0).mean() < 5e-3


@pytest.mark.parametrize("dtype", WORDS)
@pytest.mark.parametrize("domain", ["", "com.microsoft"])
@pytest.mark.parametrize("size", [5, 700, 40001])
def test_sixteen_bits(dtype, domain, size):
    limits, rng = np.iinfo(dtype), np.random.default_rng(1)
    zero = dtype(limits.min // 3 + 77)
    x = np.concatenate((rng.standard_normal(size) * 40, [np.inf, -np.inf, 1e9, -1e9])).astype(np.float32)
    constants = {"s": np.float32(0.0021), "z": zero}
    made = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], domain=domain)
    found, expected = results_of([made], x, constants, dtype)
    for result in found:
        np.testing.assert_array_equal(result, expected)
    steps = np.concatenate((expected, np.array([limits.min, limits.max], dtype)))
    taken = helper.make_node("DequantizeLinear", ["x", "s", "z"], ["y"], domain=domain)
    found, expected = results_of([taken], steps, constants, np.float32)
    for result in found:
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("channels", [5, 6, 8])
@pytest.mark.parametrize("dtype", BYTES)
def test_windows_of_signals_with_gaps(channels, dtype):
    limits, rng = np.iinfo(dtype), np.random.default_rng(2)
    x = rng.integers(limits.min, limits.max, (1, channels, 400), endpoint=True).astype(dtype)
    weight = rng.integers(-127, 128, (64, channels, 3)).astype(np.int8)
    constants = {"s": np.float32(0.02), "z": dtype(7), "w": weight, "u": np.float32(0.01), "o": np.int8(0), "t": np.float32(0.4)}
    made = helper.make_node("QLinearConv", ["x", "s", "z", "w", "u", "o", "t", "z"], ["y"], dilations=[2])
    found, expected = results_of([made], x, constants, dtype)
    for result in found:
        assert np.abs(result.astype(np.int64) - expected).max() <= 1
