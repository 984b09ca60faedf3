"""QLinearConv whose weights do not fit into 8 bits once their zero point is taken off, against integers."""

import numpy as np
import pytest
from ort_sdk_cpu.onednn.library import is_available
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import has_vnni

from ort_sdk.api import NodeArg

CASES = {
    "plain": ((1, 24, 15, 17), (40, 24, 3, 3), {"pads": [1, 1, 1, 1]}),
    "groups": ((2, 32, 20, 20), (32, 8, 3, 3), {"group": 4, "pads": [1, 0, 1, 2]}),
    "one filter per channel": ((1, 48, 30, 30), (48, 1, 3, 3), {"group": 48, "strides": [2, 2]}),
    "one axis": ((2, 32, 90), (24, 32, 5), {"dilations": [2]}),
}


def operands(shape, weight_shape, zero_points, *, per_channel, bias):
    rng = np.random.default_rng(0)
    outputs = weight_shape[0]
    x = rng.integers(0, 256, shape).astype(np.uint8)
    w = rng.integers(0, 256, weight_shape).astype(np.uint8)
    scales = rng.random(outputs if per_channel else ()).astype(np.float32) / 100 + np.float32(1e-3)
    x_zero, w_zero = (np.array(value, np.uint8) for value in zero_points)
    if per_channel:
        w_zero = rng.integers(90, 160, outputs).astype(np.uint8)
    added = [rng.integers(-9000, 9000, outputs).astype(np.int32)] if bias else []
    last = np.float32(40) * np.float32(np.sqrt(np.prod(weight_shape[1:]))) / 30
    return [x, np.float32(0.02), x_zero, w, scales, w_zero, np.float32(0.01) * last, np.uint8(117), *added]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_convolutions(check, case, per_channel, bias):
    shape, weight_shape, attributes = CASES[case]
    for zero_points in ((3, 100), (0, 140)):
        inputs = operands(shape, weight_shape, zero_points, per_channel=per_channel, bias=bias)
        inputs = [np.asarray(value) for value in inputs]
        for x in (inputs[0], np.moveaxis(np.ascontiguousarray(np.moveaxis(inputs[0], 1, -1)), -1, 1)):
            check("QLinearConv", x, *inputs[1:], constants=range(1, len(inputs)), **attributes)


@pytest.mark.skipif(
    not (is_available() and has_vnni() and libraries.compiled_kernels().is_usable), reason="another kernel computes it"
)
def test_results_are_those_of_whole_numbers(make_kernel):
    shape, weight_shape, _ = CASES["plain"]
    inputs = [np.asarray(value) for value in operands(shape, weight_shape, (3, 100), per_channel=False, bias=True)]
    kernel = make_kernel("QLinearConv", inputs, {}, "", None, range(1, 9), (NodeArg("y", "tensor(uint8)"),))
    assert type(kernel).__name__ == "QLinearConvKernel"
    assert kernel.output_shape(inputs) == (1, 40, 13, 15)
    x, _, x_zero, w, scale, w_zero, y_scale, y_zero, bias = inputs
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64) - x_zero, (3, 3), axis=(2, 3))
    sums = np.einsum("nchwij,mcij->nmhw", windows, w.astype(np.int64) - w_zero) + bias.reshape(1, -1, 1, 1)
    factor = np.float32(inputs[1] * scale / y_scale)
    expected = np.clip(np.rint(sums.astype(np.float32) * factor) + int(y_zero), 0, 255).astype(np.uint8)
    np.testing.assert_array_equal(kernel.compute(*inputs), expected)
