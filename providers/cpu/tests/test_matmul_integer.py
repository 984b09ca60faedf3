"""MatMulInteger by compiled tasks, beside exact sums."""

import numpy as np
import pytest
from onnx import helper, numpy_helper
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.quantized.matmul import constant_b

import ort_sdk as ort

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))


def _numbers(dtype, *shape, seed=0):
    bounds = np.iinfo(dtype)
    return np.random.default_rng((seed, *shape)).integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def _run(a, b, a_zero=None, b_zero=None):
    """What a session gives in its fourth run, and whether the task computed it."""
    made, put = [], constant_b._IntegerKernel._put
    kind = helper.np_dtype_to_tensor_dtype(a.dtype)
    constants = {"b": b} | ({} if a_zero is None else {"az": a_zero}) | ({} if b_zero is None else {"bz": b_zero})
    names = ["a", "b", "" if a_zero is None else "az", "" if b_zero is None else "bz"]
    node = helper.make_node("MatMulInteger", names, ["y"])
    infos, results = [helper.make_tensor_value_info("a", kind, a.shape)], [helper.make_tensor_value_info("y", 6, None)]
    graph = helper.make_graph([node], "graph", infos, results, [numpy_helper.from_array(v, k) for k, v in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constant_b._IntegerKernel, "_put", lambda self, *arrays: made.append(1) or put(self, *arrays))
        for _ in range(4):
            (found,) = session.run(None, {"a": a})
    assert found.dtype == np.int32
    return found, bool(made)


def _exact(a, b, a_zero, b_zero):
    shift = 0 if b_zero is None else b_zero.astype(np.int64)
    return (a.astype(np.int64) - (0 if a_zero is None else a_zero.astype(np.int64))) @ (b.astype(np.int64) - shift)


@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)])
@pytest.mark.parametrize("shape", [(1, 64), (17, 33), (2, 3, 128), (64, 256)])
@pytest.mark.parametrize("zeros", ["none", "one", "each"])
def test_exact_sums(types, shape, zeros):
    a, b = _numbers(types[0], *shape), _numbers(types[1], shape[-1], 40, seed=1)
    a_zero = None if zeros == "none" else np.array(100, types[0])
    b_zero = {"none": None, "one": np.array(7, types[1]), "each": _numbers(types[1], 40, seed=2)}[zeros]
    found, is_compiled = _run(a, b, a_zero, b_zero)
    np.testing.assert_array_equal(found, _exact(a, b, a_zero, b_zero))
    assert is_compiled


def test_largest_sums():
    a, b = np.full((3, 516), 255, np.uint8), np.full((516, 16), 127, np.int8)
    found, is_compiled = _run(a, b)
    np.testing.assert_array_equal(found, 255 * 127 * 516)
    assert is_compiled
    a, b = np.full((3, 2000), 255, np.uint8), np.full((2000, 16), -128, np.int8)
    a[0, 0] = 254
    found, is_compiled = _run(a, b)
    np.testing.assert_array_equal(found, _exact(a, b, None, None))
    assert is_compiled


@pytest.mark.parametrize("types", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8), (np.int8, np.uint8)])
@pytest.mark.parametrize("zeros", [(0, 0), (255, 255), (100, 7)])
def test_sums_that_float_does_not_hold(types, zeros):
    a, b = _numbers(types[0], 2, 3, 1543), _numbers(types[1], 1543, 40, seed=1)
    a_zero, b_zero = (np.array(zero).astype(dtype) for zero, dtype in zip(zeros, types, strict=True))
    found, is_compiled = _run(a, b, a_zero, b_zero)
    np.testing.assert_array_equal(found, _exact(a, b, a_zero, b_zero))
    assert is_compiled


def test_zero_points_of_rows_are_the_shared_sets():
    a, b, zeros = _numbers(np.uint8, 5, 64), _numbers(np.int8, 64, 40), _numbers(np.uint8, 5, seed=3)
    found, is_compiled = _run(a, b, zeros)
    np.testing.assert_array_equal(found, _exact(a, b, zeros[:, None], None))
    assert not is_compiled
