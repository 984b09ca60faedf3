"""Fourier transforms, windows and mel filters against onnxruntime, NumPy and their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, TensorElementType
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

RNG = np.random.default_rng(8)


def signal(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


def index(value):
    return np.array(value, np.int64)


def run_strict(op_type, inputs, opset, element_type=TensorElementType.FLOAT, **attributes):
    return run_kernel(op_type, inputs, [element_type], opset=opset, attributes=attributes)[0]


def transformed(x, length, axis, onesided, inverse):
    """DFT of parts by NumPy's transforms of complex128."""
    z = x[..., 0] + (1j * x[..., 1] if x.shape[-1] == 2 else 0j)
    if inverse and onesided:
        return np.fft.irfft(z, length, axis)[..., None]
    spectrum = (np.fft.ifft if inverse else np.fft.fft)(z, length, axis)
    if onesided:
        spectrum = np.take(spectrum, range(spectrum.shape[axis] // 2 + 1), axis)
    return np.stack([spectrum.real, spectrum.imag], -1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", [None, 6, 12])
@pytest.mark.parametrize(("parts", "onesided", "inverse"), [(1, 0, 0), (1, 1, 0), (1, 0, 1), (2, 0, 0), (2, 0, 1), (2, 1, 1)])
def test_dft(parts, onesided, inverse, length, dtype):
    inputs = [signal(2, 9, 3, parts, dtype=dtype), None if length is None else index(length)]
    attributes = {"onesided": onesided, "inverse": inverse}
    tolerance, element_type = (1e-6 if dtype is np.float32 else 1e-14), TensorElementType.from_numpy_dtype(dtype)
    for axis in (1, -2):
        expected = transformed(inputs[0], length, axis + 1 if axis < 0 else axis, onesided, inverse).astype(dtype)
        (old,) = run_sdk(*make_model("DFT", inputs, opset=17, attributes=attributes | {"axis": axis}))
        (new,) = run_sdk(*make_model("DFT", [*inputs, index(axis)], opset=20, attributes=attributes))
        strict = run_strict("DFT", [*inputs, index(axis)], 20, element_type, **attributes)
        for actual in (old, new, strict):
            assert_same(actual, expected, tolerance, 5 * tolerance)


@pytest.mark.parametrize(("parts", "onesided", "inverse"), [(1, 0, 0), (1, 1, 0), (2, 0, 1), (2, 1, 1)])
def test_dft_as_onnxruntime(parts, onesided, inverse):
    attributes = {"onesided": onesided, "inverse": inverse}
    compare("DFT", [signal(2, 9, 3, parts)], opset=17, attributes=attributes, atol=1e-4)
    compare("DFT", [signal(2, 9, 3, parts), None, index(1)], opset=20, attributes=attributes, atol=1e-4)


def test_dft_defaults():
    x = signal(2, 9, 3, 2)
    for opset, axis in ((17, 1), (20, 2)):
        (actual,) = run_sdk(*make_model("DFT", [x], opset=opset))
        spectrum = np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=axis)
        np.testing.assert_allclose(actual, np.stack([spectrum.real, spectrum.imag], -1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "attributes", "length", "axis", "text"),
    [
        ((2, 9, 3), {}, None, 1, "parts"),
        ((2, 9, 2), {"onesided": 1}, None, 1, "real input"),
        ((2, 9, 1), {"onesided": 1, "inverse": 1}, None, 1, "complex input"),
        ((2, 9, 1), {}, None, 2, "axis 2"),
        ((2, 9, 1), {}, None, -1, "axis -1"),
        ((2, 9, 1), {}, 0, 1, "positive"),
    ],
)
def test_wrong_dft(shape, attributes, length, axis, text):
    inputs = [signal(*shape), None if length is None else index(length), index(axis)]
    with pytest.raises(InvalidArgument, match=text):
        run_strict("DFT", inputs, 20, **attributes)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize(("window", "length"), [(None, 8), (8, None), (8, 8)])
def test_stft(window, length, onesided, parts):
    weights = None if window is None else np.hanning(window).astype(np.float32)
    inputs = [signal(2, 30, parts), index(4), weights, None if length is None else index(length)]
    expected = compare("STFT", inputs, opset=17, attributes={"onesided": onesided})[0]
    assert expected.shape == (2, 6, 5 if onesided else 8, 2)
    assert_same(run_strict("STFT", inputs, 17, onesided=onesided), expected, 1e-5, 1e-5)


def test_stft_of_one_frame():
    x = signal(1, 16, 1)
    (actual,) = run_sdk(*make_model("STFT", [x, index(4)], opset=17))
    spectrum = np.fft.rfft(x[..., 0])[:, None]
    np.testing.assert_allclose(actual, np.stack([spectrum.real, spectrum.imag], -1), rtol=1e-5, atol=1e-5)


def test_stft_of_a_signal_without_last_dimension():
    x = signal(2, 30)
    (actual,) = compare("STFT", [x, index(4), np.hanning(8).astype(np.float32)], opset=17)
    assert actual.shape == (2, 6, 5, 2)


def test_wrong_stft():
    x = signal(1, 16, 1)
    with pytest.raises(InvalidArgument, match="no frame of 17"):
        run_strict("STFT", [x, index(4), None, index(17)], 17)
    with pytest.raises(InvalidArgument, match="the window has 4"):
        run_strict("STFT", [x, index(4), signal(4), index(8)], 17)


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("size", [0, 2, 5, 400])
@pytest.mark.parametrize("op_type", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows(op_type, size, periodic):
    compare(op_type, [index(size)], opset=17, attributes={"periodic": periodic}, atol=1e-6)


@pytest.mark.parametrize(("op_type", "formula"), [("HannWindow", np.hanning), ("BlackmanWindow", np.blackman)])
def test_symmetric_windows_of_other_types(op_type, formula):
    for size in (1, 7):
        for element_type in (TensorElementType.DOUBLE, TensorElementType.FLOAT16, TensorElementType.INT32):
            attributes = {"periodic": 0, "output_datatype": int(element_type)}
            (actual,) = run_sdk(*make_model(op_type, [index(size)], opset=17, attributes=attributes))
            expected = formula(size).astype(element_type.numpy_dtype)
            assert_same(actual, expected, 1e-3 if element_type is TensorElementType.FLOAT16 else 1e-14, 1e-14)
    assert run_strict("HannWindow", [index(7)], 17).dtype == np.float32


def test_negative_window_size():
    with pytest.raises(InvalidArgument, match="-1"):
        run_strict("HannWindow", [index(-1)], 17)


@pytest.mark.parametrize(
    ("bins", "length", "rate", "lower", "upper"),
    [(8, 16, 8192, 0.0, 4096.0), (40, 512, 16000, 20.0, 7600.0), (3, 8, 100, 1.0, 2.0)],
)
def test_mel_weight_matrix(bins, length, rate, lower, upper):
    inputs = [index(bins), index(length), index(rate), np.array(lower, np.float32), np.array(upper, np.float32)]
    (expected,) = compare("MelWeightMatrix", inputs, opset=17)
    assert_same(run_strict("MelWeightMatrix", inputs, 17), expected, 1e-6, 1e-6)


def test_wrong_mel_weight_matrix():
    inputs = [index(0), index(8), index(100), np.array(1, np.float32), np.array(2, np.float32)]
    with pytest.raises(InvalidArgument, match="positive"):
        run_strict("MelWeightMatrix", inputs, 17)
