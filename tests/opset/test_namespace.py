"""The adapters over array libraries."""

import array_api_strict
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
