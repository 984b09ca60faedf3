"""Elements at places that only a run knows, between other steps that need no Python, and the places of the largest."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.movement.gather import even_stride
from ort_sdk_cpu.movement.gather_scatter import _AxisPositions

import ort_sdk as ort
from ort_sdk.api.errors import OrtSdkError

node = helper.make_node
INT64 = TensorProto.INT64


@pytest.fixture(autouse=True)
def _tasks_for_few_elements(monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.kernel.task_writer.MIN_ELEMENTS", 1)


def value(name, shape, element_type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element_type, shape)


def model_bytes(nodes, inputs, outputs, constants):
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _check(model, all_feeds):
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for feeds in all_feeds:
        wanted = reference.run(None, feeds)
        for _ in range(4):
            for ours, theirs in zip(session.run(None, feeds), wanted, strict=True):
                assert ours.dtype == theirs.dtype
                np.testing.assert_array_equal(ours, theirs)
    return session


def _random(shape, dtype, seed=0):
    numbers = np.random.default_rng(seed).standard_normal(shape) * 50
    return numbers.astype(dtype)


def _model(op_type, data, axis, index_shape, index_type, *, table=None):
    """Indices are worked out in the run, and what is taken is read by a further step."""
    nodes = [
        node("Add", ["indices", "none"], ["places"]),
        node(op_type, ["data", "places"], ["taken"], axis=axis),
        node("Cast", ["taken"], ["y"], to=TensorProto.FLOAT),
    ]
    element = helper.np_dtype_to_tensor_dtype(data.dtype)
    index_element = helper.np_dtype_to_tensor_dtype(np.dtype(index_type))
    inputs = [value("indices", list(index_shape), index_element)]
    constants = {"none": np.zeros((), index_type)}
    if table is None:
        inputs.append(value("data", list(data.shape), element))
    else:
        constants["data"] = table
    return model_bytes(nodes, inputs, [value("y", None)], constants)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64, np.uint8, np.float16, np.bool_])
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize(("shape", "axis", "index_shape"), [((5, 3), 0, (2, 2)), ((2, 5, 17), 1, ()), ((4, 5), -1, (3,))])
def test_gather(dtype, index_type, shape, axis, index_shape):
    data = _random(shape, dtype)
    generator = np.random.default_rng(1)
    model = _model("Gather", data, axis, index_shape, index_type)
    feeds = [
        {"data": _random(shape, dtype, seed), "indices": generator.integers(-limit, limit, index_shape).astype(index_type)}
        for seed, limit in ((2, shape[axis]), (3, 1), (4, shape[axis]))
    ]
    _check(model, feeds)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32, np.uint8])
@pytest.mark.parametrize(("shape", "axis", "index_shape"), [((5, 3), 0, (2, 2)), ((2, 5, 7), 1, (2, 3, 7)), ((4, 5), -1, (3, 9))])
def test_gather_elements(dtype, shape, axis, index_shape):
    data = _random(shape, dtype)
    generator = np.random.default_rng(1)
    model = _model("GatherElements", data, axis, index_shape, np.int64)
    limit = shape[axis]
    _check(model, [{"data": data, "indices": generator.integers(-limit, limit, index_shape)} for _ in range(3)])


@pytest.mark.parametrize("op_type", ["Gather", "GatherElements"])
@pytest.mark.parametrize("wrong", [4, -5, 2**40])
def test_an_index_out_of_range_names_the_node_and_harms_nothing(op_type, wrong):
    data = _random((4, 6), np.float32)
    model = _model(op_type, data, 0, (2, 3), np.int64)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    good, bad = np.array([[0, 1, 3], [-4, 2, 2]]), np.array([[0, 1, wrong], [0, 0, 0]])
    wanted = session.run(None, {"data": data, "indices": good})[0]
    for _ in range(4):
        with pytest.raises(OrtSdkError, match=op_type):
            session.run(None, {"data": data, "indices": bad})
        np.testing.assert_array_equal(session.run(None, {"data": data, "indices": good})[0], wanted)


@pytest.fixture
def a_team_for_few_elements(monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.platform.libraries.thread_count", lambda: 3)
    monkeypatch.setattr("ort_sdk_cpu.kernel.task_writer.ELEMENTS_PER_THREAD", 1)
    monkeypatch.setattr("ort_sdk_cpu.movement.select.MAX_TAKEN", 0)


@pytest.mark.usefixtures("a_team_for_few_elements")
@pytest.mark.parametrize(
    ("shape", "axis", "index_shape"), [((5, 3), 0, (2, 2)), ((3, 5, 17), 1, (2,)), ((4, 5), -1, (3,)), ((4,), 0, (7,))]
)
def test_a_team_gathers(shape, axis, index_shape):
    model = _model("Gather", _random(shape, np.float32), axis, index_shape, np.int64)
    generator, limit = np.random.default_rng(1), shape[axis]
    feeds = [
        {"data": _random(shape, np.float32, seed), "indices": generator.integers(-limit, limit, index_shape)} for seed in (2, 3)
    ]
    session = _check(model, feeds)
    with pytest.raises(OrtSdkError, match="Gather"):
        session.run(None, feeds[0] | {"indices": np.full(index_shape, limit)})
    _check(model, feeds[:1])


def test_a_table_that_is_constant():
    table = _random((9, 33), np.float32)
    model = _model("Gather", table, 0, (4,), np.int64, table=table)
    _check(model, [{"indices": np.array(places)} for places in ([0, 8, -9, 3], [1, 1, 1, -1])])


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize(
    ("shape", "axis", "keepdims"), [((7,), 0, 1), ((3, 9), 1, 0), ((3, 9), 0, 1), ((2, 5, 3), -2, 0), ((4, 1), 1, 0)]
)
def test_arg_max(op_type, shape, axis, keepdims):
    nodes = [
        node("Neg", ["x"], ["z"]),
        node(op_type, ["z"], ["place"], axis=axis, keepdims=keepdims),
        node("Add", ["place", "one"], ["y"]),
    ]
    model = model_bytes(nodes, [value("x", list(shape))], [value("y", None, INT64)], {"one": np.int64(1)})
    feeds = [{"x": _random(shape, np.float32, seed)} for seed in range(4)]
    ties = {"x": np.round(_random(shape, np.float32, 9) / 60)}
    edges = {"x": np.where(np.arange(np.prod(shape)).reshape(shape) % 3 == 1, np.inf, -np.inf).astype(np.float32)}
    _check(model, [*feeds, ties, edges, {"x": np.zeros(shape, np.float32)}])


def test_the_first_nan_is_the_largest():
    """As NumPy has it, which computes this step by step."""
    x = _random((3, 8), np.float32)
    x[0, 3] = x[0, 5] = x[2, 0] = np.nan
    nodes = [node("Neg", ["x"], ["z"]), node("ArgMax", ["z"], ["place"], axis=1), node("Add", ["place", "one"], ["y"])]
    model = model_bytes(nodes, [value("x", [3, 8])], [value("y", None, INT64)], {"one": np.int64(1)})
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(4):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.argmax(-x, axis=1, keepdims=True) + 1)


def test_elements_are_taken_by_a_task_that_needs_no_python():
    data, indices, out = _random((5, 3), np.float32), np.array([[0, 4, 2]]), np.zeros((1, 3), np.float32)
    call = _AxisPositions((5, 3), 0, (1, 3)).gather_call(lambda *_: None, data, indices, out)
    assert call is not None
    assert call.native.rows
    call()
    np.testing.assert_array_equal(out, np.take_along_axis(data, indices, 0))


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_columns_of_indices_take_from_a_table_each(index_type):
    """As models of many features are written: the indices of one table are a column of the input."""
    tables = {f"t{column}": _random((7 + column, 5), np.float32, column) for column in range(3)}
    nodes = [node("Split", ["x"], ["c0", "c1", "c2"], axis=1)]
    nodes += [node("Gather", [f"t{column}", f"c{column}"], [f"g{column}"]) for column in range(3)]
    nodes.append(node("Concat", ["g0", "g1", "g2"], ["y"], axis=1))
    given = [value("x", ["n", 3], helper.np_dtype_to_tensor_dtype(np.dtype(index_type)))]
    model = model_bytes(nodes, given, [value("y", None)], tables)
    generator = np.random.default_rng(0)
    session = _check(model, [{"x": generator.integers(-7, 7, (rows, 3)).astype(index_type)} for rows in (4, 1, 9)])
    with pytest.raises(OrtSdkError, match="Gather"):
        session.run(None, {"x": np.array([[0, 0, 0], [0, 99, 0], [0, 0, 0], [0, 0, 0]], index_type)})


@pytest.mark.parametrize("perm", [(1, 0, 2), (2, 1, 0), (0, 2, 1)])
def test_indices_of_any_layout(perm):
    table = _random((9, 6), np.float32)
    nodes = [node("Transpose", ["x"], ["i"], perm=perm), node("Gather", ["t", "i"], ["g"]), node("Neg", ["g"], ["y"])]
    model = model_bytes(nodes, [value("x", [2, 3, 4], INT64)], [value("y", None)], {"t": table})
    _check(model, [{"x": np.random.default_rng(seed).integers(-9, 9, (2, 3, 4))} for seed in range(2)])


def test_the_stride_of_elements_in_row_major_order():
    whole = np.arange(24).reshape(4, 6)
    assert even_stride(whole) == even_stride(whole[:, :1].T[:, :1]) == 8
    assert even_stride(whole[:, 1:2]) == even_stride(whole[:, 2]) == 48
    assert even_stride(whole[:, ::2]) == 16
    assert even_stride(whole[::-1, ::-1]) == -8
    assert even_stride(np.broadcast_to(whole[0, 0], (3, 2))) == 0
    assert even_stride(whole[:, :5]) is even_stride(whole.T) is even_stride(whole[::2]) is None


def _scattering(shape, axis, index_type):
    """Updates added to data at indices, all worked out in the run."""
    index_element = helper.np_dtype_to_tensor_dtype(np.dtype(index_type))
    nodes = [
        node("Add", ["i", "none"], ["places"]),
        node("Neg", ["u"], ["updates"]),
        node("ScatterElements", ["data", "places", "updates"], ["sums"], axis=axis, reduction="add"),
        node("Neg", ["sums"], ["y"]),
    ]
    inputs = [value("data", list(shape)), value("i", ["a"] + ["b"] * (len(shape) - 1), index_element)]
    inputs.append(value("u", ["a"] + ["b"] * (len(shape) - 1)))
    return model_bytes(nodes, inputs, [value("y", None)], {"none": np.zeros((), index_type)})


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("shape", "axis", "count"), [((7,), 0, (40,)), ((5, 3), 0, (30, 3)), ((5, 3), 0, (4, 2)), ((4, 6), 1, (3, 17))]
)
def test_updates_are_added_in_their_order(shape, axis, count, index_type):
    generator = np.random.default_rng(0)
    limit = shape[axis]
    feeds = [
        {
            "data": _random(shape, np.float32, seed),
            "i": generator.integers(-limit, limit, count).astype(index_type),
            "u": _random(count, np.float32, seed + 5),
        }
        for seed in range(3)
    ]
    session = _check(_scattering(shape, axis, index_type), feeds)
    for wrong in (limit, -limit - 1):
        bad = feeds[0] | {"i": np.full(count, wrong, index_type)}
        with pytest.raises(OrtSdkError, match="ScatterElements"):
            session.run(None, bad)


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize(("shape", "axis"), [((2, 21, 33, 17), 1), ((40, 35), 0), ((3, 5, 16), 1), ((1, 150, 40, 40), -3)])
@pytest.mark.parametrize("follows_convolution", [False, True])
def test_arg_max_of_columns(op_type, shape, axis, follows_convolution):
    rng, constants, nodes, searched = np.random.default_rng(3), {}, [], "x"
    if follows_convolution and len(shape) == 4:
        constants["w"] = rng.standard_normal((shape[1], shape[1], 1, 1)).astype(np.float32)
        nodes, searched = [node("Conv", ["x", "w"], ["z"])], "z"
    nodes.append(node(op_type, [searched], ["y"], axis=axis, keepdims=0))
    model = model_bytes(nodes, [value("x", list(shape))], [value("y", None, INT64)], constants)
    exact = rng.integers(-3, 3, shape).astype(np.float32)
    _check(model, [{"x": _random(shape, np.float32)} if constants else {"x": exact}])


@pytest.mark.parametrize(("op_type", "find"), [("ArgMax", np.argmax), ("ArgMin", np.argmin)])
def test_arg_max_of_columns_finds_the_first_nan(op_type, find):
    x = _random((2, 21, 48), np.float32)
    x.reshape(-1)[np.random.default_rng(5).integers(0, x.size, 90)] = np.nan
    model = model_bytes([node(op_type, ["x"], ["y"], axis=1)], [value("x", [2, 21, 48])], [value("y", None, INT64)], {})
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(4):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], find(x, axis=1, keepdims=True))
