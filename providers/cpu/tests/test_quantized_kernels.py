"""Kernels of 8-bit tensors: convolution and products over oneDNN, exact; addition and (de)quantization by compiled tasks."""

import numpy as np
import pytest
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.quantized.conv.qlinear import QLinearConvKernel, can_compute
from ort_sdk_cpu.quantized.matmul.qgemm import QGemmKernel

MICROSOFT = "com.microsoft"
PARAMETERS = tuple(range(1, 9))
needs_library = pytest.mark.skipif(not can_compute(), reason="oneDNN is missing, or VNNI and numba")
needs_compiler = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba is not installed")


def of_type(rng, dtype, *shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def number(value, dtype=np.float32):
    return np.array(value, dtype)


def channels_last(array):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def rounded(sums, scale, zero_point, dtype):
    """The definition, in float64."""
    limits = np.iinfo(dtype)
    return np.clip(np.rint(sums * scale) + int(zero_point), limits.min, limits.max)


def assert_within_one_step(found, expected):
    """Products that lie between two steps may fall to either, by the rounding of float32."""
    difference = np.abs(found.astype(np.int64) - expected)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 1e-3


CONVOLUTIONS = [
    ((1, 64, 14, 14), (64, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 3, 60, 61), (24, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
    ((2, 4, 23, 27), (33, 4, 1, 1), {}),
    ((3, 1, 50, 40), (64, 1, 1, 1), {}),
    ((1, 32, 30, 30), (32, 1, 3, 3), {"group": 32, "pads": [1, 1, 1, 1]}),
    ((1, 30, 30, 30), (60, 10, 3, 3), {"group": 3, "dilations": [2, 1]}),
    ((3, 100, 14, 14), (50, 100, 1, 1), {"strides": [2, 2]}),
    ((2, 17, 300), (33, 17, 5), {"auto_pad": "SAME_LOWER"}),
    ((1, 8, 9, 10, 11), (16, 8, 3, 2, 1), {}),
    ((1, 4, 33, 40), (10, 4, 3, 3), {"pads": [1, 0, 2, 1]}),
    ((1, 6, 20, 50), (70, 6, 3, 2), {"dilations": [3, 1], "pads": [0, 1, 0, 0]}),
    ((1, 8, 400), (24, 8, 3), {"dilations": [5], "pads": [10, 0]}),
    ((1, 512, 7, 7), (512, 512, 1, 1), {}),
    ((2, 64, 50, 50), (130, 64, 1, 1), {}),
    ((1, 96, 40, 120), (64, 96, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 12, 20, 101), (12, 1, 1, 3), {"group": 12, "dilations": [1, 2], "pads": [0, 2, 0, 2]}),
]


@needs_library
@pytest.mark.parametrize("x_type", [np.uint8, np.int8])
@pytest.mark.parametrize(("w_type", "w_zero"), [(np.int8, 0), (np.uint8, 128), (np.int8, "per channel")])
@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), CONVOLUTIONS, ids=str)
def test_qlinear_conv(make_kernel, run_both, x_shape, w_shape, attributes, x_type, w_type, w_zero, monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.quantized.conv.select.MINIMUM_WORK", 0)
    rng = np.random.default_rng(0)
    x, w = of_type(rng, x_type, *x_shape), of_type(rng, w_type, *w_shape)
    zeros = np.full(w_shape[0], 0 if w_zero == "per channel" else w_zero, w_type)
    if w_zero == "per channel":
        w, zeros = (w // 2).astype(w_type), rng.integers(-20, 20, w_shape[0]).astype(w_type)
    scales = (rng.random(w_shape[0]) / 100 + 0.001).astype(np.float32)
    y_scale = number(np.sqrt(np.prod(w_shape[1:])) * 0.3)
    bias = rng.integers(-1000, 1000, w_shape[0]).astype(np.int32)
    given = [x, number(0.02), number(7, x_type), w, scales, zeros, y_scale, number(3, x_type), bias]
    per_channel = (-1, *(1 for _ in w_shape[2:]))
    centred = x.astype(np.float64) - 7, w.astype(np.float64) - zeros.reshape(-1, *(1 for _ in w_shape[1:]))
    sums = make_kernel("Conv", centred, attributes, "", None, (), ()).compute(*centred) + bias.reshape(per_channel)
    expected = rounded(sums, (0.02 * scales.astype(np.float64) / y_scale).reshape(per_channel), 3, x_type)
    kernel = make_kernel("QLinearConv", tuple(given), attributes, "", None, PARAMETERS, ())
    assert isinstance(kernel, QLinearConvKernel)
    assert kernel.output_shape(given) is not None
    for source in (x, channels_last(x)):
        found, bound = run_both("QLinearConv", source, *given[1:], constants=PARAMETERS, **attributes)
        assert found[0].dtype == x_type
        assert_within_one_step(found[0], expected)
        np.testing.assert_array_equal(bound[0], found[0])


@needs_library
def test_weights_that_do_not_fit_are_convolved_in_two_parts(make_kernel):
    x, w = np.ones((1, 16, 30, 30), np.uint8), np.full((16, 16, 3, 3), 255, np.uint8)
    given = (x, number(1), number(0, np.uint8), w, number(1), number(3, np.uint8), number(1e3), number(0, np.uint8))
    kernel = make_kernel("QLinearConv", given, {}, "", None, tuple(range(1, 8)), ())
    assert isinstance(kernel, QLinearConvKernel)
    np.testing.assert_array_equal(kernel.compute(*given), np.full((1, 16, 28, 28), round(16 * 9 * 252 / 1e3), np.uint8))


@needs_library
@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("sizes", [(1, 300, 500), (37, 64, 96), (5, 1000, 33)], ids=str)
def test_qgemm(make_kernel, run_both, sizes, transposed, monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.quantized.conv.select.MINIMUM_WORK", 0)
    rows, inner, columns = sizes
    rng = np.random.default_rng(1)
    a = of_type(rng, np.uint8, rows, inner)
    b = of_type(rng, np.int8, *((columns, inner) if transposed else (inner, columns)))
    scales = (rng.random(columns) / 100 + 0.001).astype(np.float32)
    bias, y_scale = rng.integers(-999, 999, columns).astype(np.int32), number(0.5)
    parameters = [number(0.02), number(120, np.uint8), b, scales, np.zeros(columns, np.int8), bias, y_scale, number(99, np.uint8)]
    sums = (a.astype(np.int64) - 120) @ (b.T if transposed else b).astype(np.int64) + bias
    expected = rounded(sums, 0.02 * scales.astype(np.float64) / 0.5, 99, np.uint8)
    kernel = make_kernel("QGemm", (a, *parameters), {"transB": transposed}, MICROSOFT, None, PARAMETERS, ())
    assert isinstance(kernel, QGemmKernel)
    found, bound = run_both("QGemm", a, *parameters, domain=MICROSOFT, constants=PARAMETERS, transB=transposed)
    assert_within_one_step(found[0], expected)
    np.testing.assert_array_equal(bound[0], found[0])


@pytest.mark.parametrize("shape", [(7, 64), (1, 20, 64), (2, 3, 5, 64)], ids=str)
@pytest.mark.parametrize("b_zero", [0, 3])
def test_qlinear_matmul(make_kernel, run_both, shape, b_zero, monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.quantized.conv.select.MINIMUM_WORK", 0)
    rng = np.random.default_rng(3)
    inner, columns = shape[-1], 48
    a, b = of_type(rng, np.uint8, *shape), (rng.integers(-100, 100, (inner, columns))).astype(np.int8)
    scales = (rng.random(columns) / 100 + 0.001).astype(np.float32)
    zeros = np.full(columns, b_zero, np.int8)
    parameters = [number(0.02), number(120, np.uint8), b, scales, zeros, number(0.5), number(99, np.uint8)]
    sums = (a.astype(np.int64) - 120) @ (b.astype(np.int64) - b_zero)
    expected = rounded(sums, 0.02 * scales.astype(np.float64) / 0.5, 99, np.uint8)
    constants = tuple(range(1, 8))
    kernel = make_kernel("QLinearMatMul", (a, *parameters), {}, "", None, constants, ())
    if can_compute():
        assert isinstance(kernel, QGemmKernel)
    found, bound = run_both("QLinearMatMul", a, *parameters, constants=constants)
    assert found[0].shape == (*shape[:-1], columns)
    assert_within_one_step(found[0], expected)
    assert_within_one_step(bound[0], expected)


@needs_compiler
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("shape", [(1, 64, 20, 20), (3, 4099), (70000,), (5, 3)], ids=str)
def test_elementwise_tasks_give_what_numpy_gives(run_both, monkeypatch, shape, dtype):
    monkeypatch.setattr("ort_sdk_cpu.kernel.eager_tasks.MIN_QUANTIZED_ELEMENTS", 1 << 40)
    rng = np.random.default_rng(2)
    a, b, x = of_type(rng, dtype, *shape), of_type(rng, dtype, *shape), (rng.standard_normal(shape) * 9).astype(np.float32)
    scales, zeros = [number(value) for value in (0.03, 0.07, 0.08)], [number(value, dtype) for value in (5, 9, 3)]
    for layout in (np.asarray, channels_last) if len(shape) > 2 else (np.asarray,):
        pairs = [argument for pair in zip(scales, zeros, strict=True) for argument in pair]
        given = [layout(a), *pairs[:2], layout(b), *pairs[2:]]
        cases = [("QLinearAdd", MICROSOFT, given), ("QuantizeLinear", "", [layout(x), *pairs[:2]])]
        for op_type, domain, inputs in [*cases, ("DequantizeLinear", "", [layout(a), *pairs[:2]])]:
            constants = tuple(index for index, value in enumerate(inputs) if value.ndim == 0)
            found, bound = run_both(op_type, *inputs, domain=domain, constants=constants)
            np.testing.assert_array_equal(bound[0], found[0])


@needs_compiler
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_steps_with_channels_last_become_row_major_numbers_without_numpy(make_kernel, monkeypatch, dtype):
    rng = np.random.default_rng(4)
    x = channels_last(of_type(rng, dtype, 2, 21, 30, 31))
    monkeypatch.setattr("ort_sdk_cpu.quantized.operators.copying_writer", lambda _compute: None)
    kernel = make_kernel("DequantizeLinear", (x, number(0.03), number(5, dtype)), {}, "", None, (1, 2), ())
    out = np.empty(x.shape, np.float32)
    kernel.bind([FixedSlot(value) for value in (x, number(0.03), number(5, dtype))], [FixedSlot(out)])()
    np.testing.assert_array_equal(out, (x.astype(np.float32) - 5) * np.float32(0.03))


@needs_compiler
@pytest.mark.parametrize("constants", [(1, 2), ()], ids=["constant", "fed"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.int32])
@pytest.mark.parametrize(
    ("shape", "attributes", "own"),
    [
        ((3, 37, 5, 7), {"axis": 1}, (37,)),
        ((130, 33), {"axis": -1}, (33,)),
        ((2, 5000), {"axis": 0}, (2,)),
        ((6, 4, 96), {"axis": 2, "block_size": 32}, (6, 4, 3)),
        ((4099,), {}, (1,)),
    ],
    ids=str,
)
def test_scales_along_an_axis(run_both, shape, attributes, own, dtype, constants):
    rng = np.random.default_rng(4)
    limits = np.iinfo(dtype)
    scales = (rng.random(own) / 9 + 0.01).astype(np.float32)
    zeros = np.zeros(own, dtype) if dtype is np.int32 else rng.integers(limits.min // 2, limits.max // 2, own).astype(dtype)
    quantized = of_type(rng, dtype, *shape)
    laid_out = [_along(values, shape, attributes) for values in (scales, zeros)]
    for steps, without in ((quantized, False), (np.ascontiguousarray(quantized.T).T, False), (quantized, True)):
        parameters = (scales, None if without else zeros)
        kept = constants[:1] if without else constants
        _, (real,) = run_both("DequantizeLinear", steps, *parameters, constants=kept, **attributes)
        centred = quantized.astype(np.int64) - (0 if without else laid_out[1])
        np.testing.assert_array_equal(real, centred.astype(np.float32) * laid_out[0])
    if dtype is not np.int32:
        _, (found,) = run_both("QuantizeLinear", real, scales, zeros, constants=constants, **attributes)
        expected = np.clip(np.rint(real / laid_out[0]).astype(np.int64) + laid_out[1], limits.min, limits.max)
        np.testing.assert_array_equal(found, expected)


def _along(values, shape, attributes):
    """Parameters as they lie against a tensor."""
    if "block_size" in attributes:
        return np.repeat(values, attributes["block_size"], attributes["axis"])
    return values if len(shape) == 1 else values.reshape(-1, *(1 for _ in shape[attributes["axis"] % len(shape) + 1 :]))


def test_halves_are_rounded_to_even(run_both):
    x = np.arange(-4096, 4096, dtype=np.float32) / 2
    _, bound = run_both("QuantizeLinear", x, number(1), number(10, np.int8), constants=(1, 2))
    np.testing.assert_array_equal(bound[0], np.clip(np.rint(x) + 10, -128, 127))
