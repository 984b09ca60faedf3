"""Products and convolutions of small integers on a device: exact sums, and constants that stay small."""

import gc

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk as ort
from ort_sdk.api import TensorElementType
from ort_sdk.device.expressions.nodes import resolved

from .device_contexts import CLASSES, host, namespace

pytestmark = pytest.mark.opencl

DEVICE = ["OpenCLExecutionProvider", "CPUExecutionProvider"]


@pytest.fixture(params=CLASSES)
def xp(request):
    return namespace(request.param)


def _integers(shape, dtype, seed=0):
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)


def _kept_bytes(array):
    """What kernels have made of a constant."""
    return sum(each.nbytes for each in resolved(array.node).memory.derived.values())


@pytest.mark.parametrize("target", [TensorElementType.FLOAT, TensorElementType.DOUBLE])
@pytest.mark.parametrize(("dtype", "zero_point", "most"), [("i1", None, 1), ("u1", None, 1), ("i1", 3, 2), ("u1", 128, 2)])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 300, 64), (20, 130, 70), (200, 64, 33)])
def test_constants_take_no_more_bytes_than_their_numbers_need(xp, m, k, n, dtype, zero_point, most, target):
    a, b = _integers((m, k), "u1"), _integers((k, n), dtype, seed=1)
    left, right = (xp.from_host(each) for each in (a, b))
    resolved(right.node).memory.is_constant = True
    factors = [xp.astype(left, target), xp.astype(right, target)]
    if zero_point is not None:
        point = xp.from_host(np.full(n, zero_point, dtype))
        resolved(point.node).memory.is_constant = True
        factors[1] = factors[1] - xp.astype(point, target)
    wanted = a.astype("i8") @ (b.astype("i8") - (zero_point or 0))
    for _ in range(2):
        np.testing.assert_allclose(host(factors[0] @ factors[1]), wanted, rtol=1e-6 * k**0.5, atol=0)
    panels = -(-n // 32) * 32 * k
    assert _kept_bytes(right) <= most * panels


@pytest.mark.parametrize("dtype", ["i1", "u1"])
def test_rows_that_are_constant(xp, dtype):
    a, b = _integers((3, 40, 70), dtype), _integers((3, 70, 300), "u1", seed=1)
    left, right = (xp.from_host(each) for each in (a, b))
    resolved(left.node).memory.is_constant = True
    factors = [xp.astype(each, TensorElementType.FLOAT) for each in (left, right)]
    wanted = a.astype("i8") @ b.astype("i8")
    for _ in range(2):
        np.testing.assert_array_equal(host(factors[0] @ factors[1]), wanted)
    assert _kept_bytes(left) <= a.nbytes


@pytest.mark.parametrize(("is_of_columns", "most"), [(True, 2), (False, 4)])
def test_dequantized_constants(xp, is_of_columns, most):
    """Sums are scaled where each column has one scale; else the numbers are, in float32, without a copy in another order."""
    a, b = np.random.default_rng(0).standard_normal((20, 96)).astype("f4"), _integers((96, 64), "i1")
    scales = np.linspace(0.1, 2, 64 if is_of_columns else 96, dtype="f4")
    scales = scales if is_of_columns else scales[:, None]
    left, right, scale, point = (xp.from_host(each) for each in (a, b, scales, np.full(64, 9, "i1")))
    for each in (right, scale, point):
        resolved(each.node).memory.is_constant = True
    for _ in range(2):
        centred = xp.astype(right, TensorElementType.FLOAT) - xp.astype(point, TensorElementType.FLOAT)
        found = host(left @ (centred * scale))
        np.testing.assert_allclose(found, a.astype("f8") @ ((b - 9.0) * scales.astype("f8")), rtol=1e-4, atol=1e-2)
    assert _kept_bytes(right) <= most * b.size


def _model(node, inputs, shape, kind, weights):
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(inputs, TensorProto.UINT8, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _matmul(zero_point):
    weights = {"b": _integers((1024, 1024), "i1"), "za": np.uint8(7), "zb": np.array(zero_point, np.int8)}
    node = helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["y"])
    a = _integers((3, 1024), "u1")
    wanted = (a.astype("i8") - 7) @ (weights["b"].astype("i8") - zero_point)
    return _model(node, "a", [3, 1024], TensorProto.INT32, weights), a, wanted, weights["b"].nbytes


def _convolution():
    weights = {"xs": np.float32(0.5), "xz": np.uint8(3), "w": _integers((256, 512, 3, 3), "i1"), "ws": np.float32(0.01)}
    weights |= {"wz": np.int8(0), "ys": np.float32(900), "yz": np.uint8(128)}
    node = helper.make_node("QLinearConv", ["x", *weights], ["y"], pads=[1, 1, 1, 1])
    x = _integers((1, 512, 4, 4), "u1")
    padded = np.pad(x.astype("i8") - 3, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    sums = np.einsum("nchwij,mcij->nmhw", windows, weights["w"].astype("i8"), optimize=True)
    wanted = np.clip(np.rint(sums * np.float32(0.5) * np.float32(0.01) / np.float32(900)) + 128, 0, 255)
    return _model(node, "x", list(x.shape), TensorProto.UINT8, weights), x, wanted, weights["w"].nbytes


@pytest.mark.parametrize(("make", "most"), [(lambda: _matmul(0), 2), (lambda: _matmul(5), 3), (_convolution, 1)])
def test_bytes_of_a_session(make, most):
    from ort_sdk_opencl.device import device_context, launcher_of

    model, x, wanted, weight_bytes = make()
    context = device_context(0)
    pool = launcher_of(context).pool
    gc.collect()
    before, workspace = pool.bytes_in_use, context.workspace(16 << 20)
    held = pool.bytes_in_use - before
    session = ort.InferenceSession(model, providers=DEVICE)
    assert {each.provider for each in session.placements()} == {DEVICE[0]}
    name = session.get_inputs()[0].name
    for _ in range(4):
        found = session.run(None, {name: x})[0]
        assert np.abs(found.astype("f8") - wanted).max() <= (1 if found.dtype == np.uint8 else 0)
    gc.collect()
    assert pool.bytes_in_use - before - held <= most * weight_bytes + (1 << 20)
    del workspace
