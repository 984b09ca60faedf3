"""The adapters over array libraries."""

import array_api_strict
import numpy as np
import pytest

from ort_sdk.api import ExtentError, InvalidGraph, TensorElementType
from ort_sdk.opset.namespace import ArrayNamespace
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk.opset.strided_views import byte_span, strided_view

NAMESPACES = [NumpyNamespace(), ArrayNamespace(array_api_strict)]


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_dtype_of_an_element_type(namespace):
    assert namespace.dtype(TensorElementType.FLOAT) == namespace.module.float32


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_no_dtype_of_an_unknown_type(namespace):
    with pytest.raises(InvalidGraph, match="type is not known; declare it"):
        namespace.dtype(None)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("parts", [1, 2])
def test_frames_as_the_module_makes_them(count, parts):
    signal = np.random.default_rng(0).standard_normal((3, 40, parts))[:, ::2]
    found = NumpyNamespace().frames(signal, 8, 3, count)
    assert found.shape == (3, count, 8, parts)
    np.testing.assert_array_equal(found, ArrayNamespace(np).frames(signal, 8, 3, count))
    np.testing.assert_array_equal(found[:, -1], signal[:, 3 * (count - 1) : 3 * (count - 1) + 8])


@pytest.mark.parametrize(("length", "step", "count"), [(8, 3, 12), (41, 1, 2), (8, -1, 2), (8, 3, -1), (8, 1 << 62, 3)])
def test_frames_stay_within_the_signal(length, step, count):
    signal = np.zeros((3, 80, 1), np.float32)[:, ::2]
    with pytest.raises(ExtentError, match="A view of shape"):
        NumpyNamespace().frames(signal, length, step, count)


def test_windows_stay_within_the_array():
    array = np.arange(24.0).reshape(1, 1, 4, 6)
    found = NumpyNamespace().sliding_windows(array, (2, 2), (1, 1), (2, 3))
    np.testing.assert_array_equal(found[0, 0, 1, 1], array[0, 0, 2:, 3:])
    for kernel, strides, dilations in (((5, 1), (1, 1), (2, 1)), ((2, 2), (1, 1), (1, -3)), ((2, 2), (-1, 1), (1, 1))):
        with pytest.raises(ExtentError, match="which has bytes 0 to 192"):
            NumpyNamespace().sliding_windows(array, kernel, strides, dilations)


def test_views_count_from_the_first_element():
    array = np.arange(12).reshape(3, 4)[::-1, ::-1]
    assert byte_span(array.shape, array.strides, array.itemsize) == (-88, 8)
    np.testing.assert_array_equal(strided_view(array, (3, 4), array.strides), array)
    assert strided_view(array, (1 << 40, 0), (1 << 40, 8)).size == 0
    assert not strided_view(array, (5,), (0,)).flags.writeable
    with pytest.raises(ExtentError, match="bytes -96 to 8 of an array"):
        strided_view(array, (2,), (-96,))
    with pytest.raises(ExtentError, match="bytes 0 to 16 of an array"):
        strided_view(array, (2,), (8,))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_parts_of_complex_numbers(dtype):
    z = (np.arange(12) + 1j * np.arange(12)[::-1]).astype(dtype).reshape(3, 4).T
    found = NumpyNamespace().complex_parts(z)
    assert found.dtype == z.real.dtype
    np.testing.assert_array_equal(found, ArrayNamespace(np).complex_parts(z))
    np.testing.assert_array_equal(found[..., 1], z.imag)


def test_what_a_namespace_takes_from_its_module_is_looked_up_once():
    xp = ArrayNamespace(np)
    assert xp.tanh is np.tanh
    assert xp.__dict__["tanh"] is np.tanh
    with pytest.raises(AttributeError, match="no_such_function"):
        xp.no_such_function  # noqa: B018


@pytest.mark.parametrize("namespace", NAMESPACES)
@pytest.mark.parametrize("length", [5, 6, 9])
def test_fourier_transforms_in_parts(namespace, length):
    parts = np.random.default_rng(0).standard_normal((2, 6, 3, 2)).astype(np.float32)
    z = parts[..., 0] + 1j * parts[..., 1]
    x, real = namespace.from_host(parts), namespace.from_host(parts[..., :1])

    def complex_of(found):
        host = namespace.to_host(found)
        assert host.dtype == np.float32
        return host[..., 0] + 1j * host[..., 1]

    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(complex_of(namespace.fourier(x, length, 1)), np.fft.fft(z, length, 1), **close)
    np.testing.assert_allclose(complex_of(namespace.fourier(x, length, 1, inverse=True)), np.fft.ifft(z, length, 1), **close)
    np.testing.assert_allclose(
        complex_of(namespace.fourier(real, length, 1, onesided=True)), np.fft.rfft(z.real, length, 1), **close
    )
    signal = namespace.to_host(namespace.fourier(x, length, 1, inverse=True, onesided=True))
    np.testing.assert_allclose(signal[..., 0], np.fft.irfft(z, length, 1), **close)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_bits_as_another_type(namespace):
    x = np.array([1.5, -0.0, np.inf], np.float32)
    found = namespace.with_bits_of(namespace.from_host(x), TensorElementType.INT32)
    np.testing.assert_array_equal(namespace.to_host(found), x.view(np.int32))


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_conversion_makes_a_new_array(namespace):
    x = namespace.from_host(np.array([1.5, -2.5], np.float32))
    found = namespace.converted(x, TensorElementType.FLOAT)
    assert found is not x
    assert namespace.to_host(namespace.converted(x, TensorElementType.INT32)).tolist() == [1, -2]
