"""The adapters over array libraries."""

import array_api_strict
import numpy as np
import pytest

from ort_sdk.api import InvalidGraph, TensorElementType
from ort_sdk.opset.namespace import ArrayNamespace
from ort_sdk.opset.numpy_namespace import NumpyNamespace

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
