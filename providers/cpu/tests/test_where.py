"""Where of any type, by a compiled task: NumPy's results, whatever the sizes and whichever operand is one element."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import helper
from ort_sdk_cpu.platform import libraries

import ort_sdk

RNG = np.random.default_rng(3)
needs_numba = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="compiles")


def _where(condition, x, y):
    """Results of three runs: step by step, and by a program."""
    arrays = {"c": condition, "x": x, "y": y}
    values = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
    output = helper.make_tensor_value_info("out", helper.np_dtype_to_tensor_dtype(x.dtype), None)
    graph = helper.make_graph([helper.make_node("Where", ["c", "x", "y"], ["out"])], "g", values, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [session.run(None, arrays)[0] for _ in range(3)]


def _elements(dtype, shape):
    numbers = RNG.integers(0, 2 if dtype == np.bool_ else 100, shape)
    return numbers.astype(dtype)


@needs_numba
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int16, np.float16, ml_dtypes.bfloat16, np.int32, np.float64, np.int64])
@pytest.mark.parametrize("shape", [(7, 101), (64, 512), (3, 11, 31)])
@pytest.mark.parametrize("ones", [(False, False), (True, False), (False, True), (True, True)])
def test_elements_of_any_size(dtype, shape, ones):
    condition = RNG.random(shape) < 0.5
    x, y = (_elements(dtype, () if is_one else shape) for is_one in ones)
    for found in _where(condition, x, y):
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.where(condition, x, y))


@needs_numba
@pytest.mark.parametrize(
    ("condition", "x", "y"),
    [
        ((40, 1), (40, 40), (40, 40)),
        ((40, 40), (40, 1), (40, 40)),
        ((1,), (40, 40), ()),
        ((5, 1, 60), (2, 5, 32, 60), (2, 5, 32, 60)),
        ((2, 1, 1, 61), (), (2, 3, 33, 61)),
        ((2, 1, 1025, 1), (2, 2, 1025, 512), ()),
    ],
)
def test_other_broadcasts(condition, x, y):
    arrays = (RNG.random(condition) < 0.5, _elements(np.int64, x), _elements(np.int64, y))
    for found in _where(*arrays):
        np.testing.assert_array_equal(found, np.where(*arrays))


@needs_numba
def test_large_arrays_on_several_threads():
    shape = (300, 1111)
    arrays = (RNG.random(shape) < 0.5, _elements(np.int64, shape), _elements(np.int64, shape))
    for found in _where(*arrays):
        np.testing.assert_array_equal(found, np.where(*arrays))
