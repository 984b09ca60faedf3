"""Kernels that move and reduce elements: bound ones give what the shared set gives, whatever the layout of inputs."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

import ort_sdk as ort
from ort_sdk.api import schema_versions


def channels_last(array):
    return np.ascontiguousarray(np.moveaxis(array, 1, -1)).transpose(0, array.ndim - 1, *range(1, array.ndim - 1))


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def check(run_both, op_type, *inputs, opset, exact=True, constants=(), **attributes):
    version = max(version for version in schema_versions(op_type, "") if version <= opset)
    found, bound = run_both(op_type, *inputs, version=version, constants=constants, **attributes)
    for one, other in zip(found, bound, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if exact:
            np.testing.assert_array_equal(other, one)
        else:
            np.testing.assert_allclose(other, one, rtol=2e-6, atol=1e-6)
    return bound[0]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    ("shape", "pads"),
    [
        ((1, 40), (0, 7, 0, 9)),
        ((1, 40), (0, 1, 0, -1)),
        ((2, 3, 5), (1, 0, 4, 1, 2, 4)),
        ((2, 3, 5), (0, -1, 2, 1, 0, -2)),
        ((1, 2, 4, 3), (0, 0, 3, 2, 0, 0, 1, 2)),
        ((1, 6), (0, 0, 0, 0)),
        ((1, 1), (0, 3, 0, 2)),
    ],
    ids=str,
)
def test_pad(run_both, mode, shape, pads):
    x, given = floats(*shape), np.array(pads, np.int64)
    result = check(run_both, "Pad", x, given, constants=(1,), mode=mode, opset=19)
    if min(pads) >= 0 and (mode != "reflect" or min(shape) > 1):
        around = list(zip(pads[: len(shape)], pads[len(shape) :], strict=True))
        np.testing.assert_array_equal(result, np.pad(x, around, mode=mode))


def test_pad_with_a_value_that_varies_and_axes(run_both):
    x, axes = floats(2, 3, 4), np.array([-1, 0], np.int64)
    result = check(run_both, "Pad", x, np.array([1, 0, 2, 1], np.int64), np.float32(7), axes, constants=(1, 3), opset=18)
    np.testing.assert_array_equal(result, np.pad(x, ((0, 1), (0, 0), (1, 2)), constant_values=7))


def test_pad_of_opset_2(run_both):
    x = floats(2, 3)
    result = check(run_both, "Pad", x, opset=10, pads=[0, 1, 0, 2], value=3.0)
    np.testing.assert_array_equal(result, np.pad(x, ((0, 0), (1, 2)), constant_values=3))


@pytest.mark.parametrize("op_type", ["L1", "L2", "LogSum", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("layout", [np.asarray, channels_last], ids=["plain", "channels last"])
def test_reductions(run_both, op_type, keepdims, layout):
    reference = {
        "L1": lambda x, axes: np.abs(x).sum(axes),
        "L2": lambda x, axes: np.sqrt(np.square(x).sum(axes)),
        "LogSum": lambda x, axes: np.log(x.sum(axes)),
        "Max": lambda x, axes: x.max(axes),
        "Mean": lambda x, axes: x.mean(axes),
        "Min": lambda x, axes: x.min(axes),
        "Prod": lambda x, axes: x.prod(axes),
        "Sum": lambda x, axes: x.sum(axes),
        "SumSquare": lambda x, axes: np.square(x).sum(axes),
    }[op_type]
    x = np.abs(floats(2, 2, 30, 17)) + np.float32(0.5)
    x = x ** np.float32(0.02) if op_type == "Prod" else x
    for axes in ([1], [-1], [2, 3], [0, 1, 2, 3], [1, 3]):
        found = check(run_both, f"Reduce{op_type}", layout(x), exact=False, opset=11, axes=axes, keepdims=keepdims)
        expected = reference(x.astype(np.float64), tuple(axes))
        np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=2e-5)


def test_reductions_of_integers(run_both):
    x = np.random.default_rng(1).integers(-9, 9, (40, 3, 20))
    for op_type in ("ReduceSum", "ReduceMax", "ReduceProd"):
        check(run_both, op_type, x, opset=11, axes=[1], keepdims=0)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_elements_by_index(run_both, axis):
    rng = np.random.default_rng(2)
    data, updates = floats(4, 5, 6), floats(3, 4, 5)
    indices = rng.permuted(np.broadcast_to(np.arange(4).reshape(-1, 1, 1), (4, 4, 5)), axis=0)[:3]
    indices = indices if axis == 0 else np.argsort(rng.random((3, 4, 5)), axis=axis)
    indices = np.where(rng.random(indices.shape) < 0.3, indices - data.shape[axis], indices)
    found = check(run_both, "GatherElements", data, indices, opset=13, axis=axis)
    if axis == 0:
        np.testing.assert_array_equal(found, np.take_along_axis(data[:, :4, :5], indices % 4, 0))
    check(run_both, "ScatterElements", data, indices, updates, opset=18, axis=axis)
    check(run_both, "ScatterElements", data, indices.astype(np.int32), updates, opset=18, axis=axis)


def test_slices_by_index_tuples(run_both):
    rng = np.random.default_rng(3)
    data = floats(4, 5, 6)
    for depth in (1, 2, 3):
        flat = rng.permutation(int(np.prod(data.shape[:depth])))[:6].reshape(2, -1) if depth > 1 else np.array([[3, 0]])
        indices = np.stack(np.unravel_index(flat, data.shape[:depth]), axis=-1).astype(np.int64)
        indices = np.where(rng.random(indices.shape) < 0.3, indices - np.array(data.shape[:depth]), indices)
        updates = floats(*indices.shape[:-1], *data.shape[depth:])
        found = check(run_both, "ScatterND", data, indices, updates, opset=16)
        expected = data.copy()
        expected[tuple(np.moveaxis(indices, -1, 0))] = updates
        np.testing.assert_array_equal(found, expected)


def test_one_hot(run_both):
    indices = np.array([[0, 3, -1], [7, -8, 2]])
    values = np.array([0.5, 2], np.float32)
    for axis in (-1, 2, 0):
        check(run_both, "OneHot", indices, np.array(4), values, constants=(1,), opset=11, axis=axis)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32, np.float16, np.bool_])
@pytest.mark.parametrize("index_type", [np.int32, np.int64, np.float32])
@pytest.mark.parametrize(("count", "depth"), [(1, 700), (40, 37), (300, 2)])
def test_one_hot_of_many_classes(run_both, dtype, index_type, count, depth):
    indices = np.random.default_rng(count).integers(-depth - 3, depth + 3, (count,)).astype(index_type)
    values = np.array([0, 1], dtype)
    found = check(run_both, "OneHot", indices, np.array(depth), values, constants=(1,), opset=11)
    expected = np.zeros((count, depth), dtype)
    for row, index in enumerate(indices.astype(int)):
        if -depth <= index < depth:
            expected[row, index] = 1
    np.testing.assert_array_equal(found, expected)


def test_tile(run_both):
    x = floats(2, 3, 1)
    found = check(run_both, "Tile", x, np.array([2, 1, 4]), constants=(1,), opset=13)
    np.testing.assert_array_equal(found, np.tile(x, (2, 1, 4)))


@pytest.mark.parametrize(("source", "target"), [(np.bool_, 7), (np.int64, 6), (np.int64, 9), (np.uint8, 7), (np.int32, 2)])
def test_casts_of_integers(run_both, source, target):
    x = np.random.default_rng(4).integers(0, 2 if source == np.bool_ else 300, (7, 9)).astype(source)
    check(run_both, "Cast", x, opset=13, to=target)


def test_indices_out_of_range_are_refused(run_both):
    with pytest.raises(Exception, match="index"):
        run_both("GatherElements", floats(3, 4), np.array([[4, 0], [0, 0]]), axis=1)


@pytest.mark.parametrize("element_type", [np.float32, np.int64, np.bool_])
def test_a_reshape_that_copies_is_bound_and_one_that_need_not_is_a_view(element_type):
    x = np.random.default_rng(0).integers(-9, 9, (2, 5, 3, 4)).astype(element_type)
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Where", ["always", "i", "i"], ["w"]),
        helper.make_node("Reshape", ["w", "flat"], ["v"]),
        helper.make_node("Transpose", ["v"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["t", "rows"], ["r"]),
        helper.make_node("Where", ["always", "r", "r"], ["y"]),
    ]
    constants = {"always": np.array(True), "flat": np.array([10, 12]), "rows": np.array([4, -1])}
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    infos, results = ([helper.make_tensor_value_info(name, kind, None)] for name in ("x", "y"))
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", infos, results, initializers)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for factor in (1, 0, 1):
        for _ in range(3):
            given = (x * factor).astype(element_type)
            (found,) = session.run(None, {"x": given})
            np.testing.assert_array_equal(found, given.reshape(10, 12).T.reshape(4, -1))
    (row,) = session.program_report()
    assert row.bound_count == 3


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_blocks_of_channels_and_of_pictures(check, mode, size, dtype):
    rng = np.random.default_rng(0)
    deep = rng.integers(0, 99, (2, 5 * size * size, 3, 4)).astype(dtype)
    wide = rng.integers(0, 99, (2, 5, 3 * size, 4 * size)).astype(dtype)
    for x in (deep, np.ascontiguousarray(deep.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)):
        check("DepthToSpace", x, blocksize=size, mode=mode)
    for x in (wide, np.asfortranarray(wide)):
        check("SpaceToDepth", x, blocksize=size)
