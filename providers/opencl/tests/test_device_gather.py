"""Elements picked and put by index: bad indices are an error when the run ends, and touch nothing."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort

pytestmark = pytest.mark.opencl

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
NODES = {
    "Gather": helper.make_node("Gather", ["x", "i"], ["y"], axis=0),
    "GatherElements": helper.make_node("GatherElements", ["x", "i"], ["y"], axis=1),
    "GatherND": helper.make_node("GatherND", ["x", "i"], ["y"]),
    "ScatterElements": helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=1),
    "ScatterND": helper.make_node("ScatterND", ["x", "i", "u"], ["y"]),
}


def _session(op_type, *, programs):
    inputs = [helper.make_tensor_value_info("x", FLOAT, [4, 5]), helper.make_tensor_value_info("i", INT64, [3, 2])]
    before = helper.make_node("Mul", ["x0", "one"], ["x"])
    inputs[0].name = "x0"
    if op_type.startswith("Scatter"):
        inputs.append(helper.make_tensor_value_info("u", FLOAT, [3, 2] if op_type == "ScatterElements" else [3]))
    one = onnx.numpy_helper.from_array(np.float32(1), "one")
    outputs = [helper.make_tensor_value_info("y", FLOAT, None)]
    graph = helper.make_graph([before, NODES[op_type]], "g", inputs, outputs, [one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = ort.SessionOptions()
    if not programs:
        options.add_session_config_entry("session.disable_programs", "1")
    return ort.InferenceSession(model.SerializeToString(), options, providers=["OpenCLExecutionProvider", "CPUExecutionProvider"])


def _wanted(op_type, x, i, u):
    y = x.copy()
    if op_type == "Gather":
        return x[i]
    if op_type == "GatherElements":
        return np.take_along_axis(x[:3], i, 1)
    if op_type == "GatherND":
        return x[i[:, 0], i[:, 1]]
    for m, pair in enumerate(i):
        if op_type == "ScatterND":
            y[pair[0], pair[1]] = u[m]
        else:
            for n, column in enumerate(pair):
                y[m, column] = u[m, n]
    return y


@pytest.mark.parametrize("programs", [True, False])
@pytest.mark.parametrize("op_type", NODES)
def test_bad_indices_are_an_error_of_their_run_alone(op_type, programs):
    session, rng = _session(op_type, programs=programs), np.random.default_rng(0)
    x = rng.standard_normal((4, 5)).astype(np.float32)
    good = np.array([[0, 1], [-1, -2], [2, 3]])
    u = rng.standard_normal((3, 2) if op_type == "ScatterElements" else 3).astype(np.float32)
    feeds = {"x0": x, "u": u} if op_type.startswith("Scatter") else {"x0": x}
    kind = "picks" if op_type.startswith("Gather") else "puts"
    # the last two are out of bounds of their axis, though not of the memory
    bad = [(0, 0, 99), (2, 1, -(1 << 40)), (1, 1, np.iinfo(np.int64).max), (0, 0, -6), (0, 1, 5)]
    for row, column, index in bad:
        for _ in range(3):
            np.testing.assert_array_equal(session.run(None, {**feeds, "i": good})[0], _wanted(op_type, x, good, u))
        wrong = good.copy()
        wrong[row, column] = index
        with pytest.raises(
            ort.api.InvalidArgument, match=rf"operator that {kind} elements .* out of bounds.*\[-size, size - 1\]"
        ):
            session.run(None, {**feeds, "i": wrong})
    np.testing.assert_array_equal(session.run(None, {**feeds, "i": good})[0], _wanted(op_type, x, good, u))


def test_nothing_is_put_at_a_bad_place(xp):
    rows, updates = np.zeros((4, 3), np.float32), np.ones((3, 3), np.float32)
    for reduction in ("none", "add"):
        got = xp.scatter(xp.from_host(rows), xp.from_host(np.array([1, 4, -9])), xp.from_host(updates), reduction)
        wanted = rows.copy()
        wanted[1] = 1
        with pytest.raises(ort.api.InvalidArgument, match="puts elements"):
            xp.to_host(got)
        xp.context.launcher.finish()
        np.testing.assert_array_equal(xp.to_host(got), wanted)


@pytest.mark.parametrize("kind", ["f4", "f2", "i8", "u1", "?"])
def test_gathered_slices(xp, kind):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((3, 7, 70)) * 9).astype(kind)
    own = xp.from_host(x)
    for axis in range(3):
        for dtype in (np.int32, np.int64):
            indices = rng.integers(-x.shape[axis], x.shape[axis], (2, 5)).astype(dtype)
            np.testing.assert_array_equal(xp.to_host(xp.gather(own, xp.from_host(indices), axis)), np.take(x, indices, axis))
            places = np.sort(np.where(indices < 0, indices + x.shape[axis], indices).reshape(-1))
            shape = [1, 1, 1]
            shape[axis] = -1
            wanted = np.take_along_axis(x, places.reshape(shape), axis)
            np.testing.assert_array_equal(
                xp.to_host(xp.take_along_axis(own, xp.from_host(places.reshape(shape)), axis=axis)), wanted
            )
    xp.context.launcher.finish()


def test_slices_of_converted_arrays_are_converted_behind(xp):
    x = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float16)
    own = xp.astype(xp.from_host(x), ort.api.TensorElementType.FLOAT)
    got = xp.gather(own, xp.from_host(np.array([[4, -1]])), 0)
    np.testing.assert_array_equal(xp.to_host(got * 2), 2 * x.astype(np.float32)[[[4, -1]]])


def test_no_elements(xp):
    x = xp.from_host(np.zeros((0, 3), np.float32))
    assert xp.gather(x, xp.from_host(np.zeros((0, 2), np.int64)), 0).shape == (0, 2, 3)
    with pytest.raises(ort.api.InvalidArgument, match="no elements"):
        xp.gather(x, xp.from_host(np.zeros(1, np.int64)), 0)
