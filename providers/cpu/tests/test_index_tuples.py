"""Slices by index tuples, elements along an axis and reversed sequences by compiled tasks, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort
from ort_sdk.api.errors import OrtSdkError

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))


@pytest.fixture(autouse=True)
def _tasks_for_few_elements(monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.kernel.task_writer.MIN_ELEMENTS", 1)


def _model(op_type, arrays, opset=18, **attributes):
    """The operator between two others, so that its arrays stay, and by itself."""
    infos = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for i, a in enumerate(arrays)
    ]
    kind = helper.np_dtype_to_tensor_dtype(arrays[0].dtype)
    names = [f"x{index}" for index in range(len(arrays))]
    nodes = [
        helper.make_node("Where", ["always", "x0", "x0"], ["w"]),
        helper.make_node(op_type, ["w", *names[1:]], ["t"], **attributes),
        helper.make_node("Where", ["always", "t", "t"], ["y"]),
        helper.make_node(op_type, names, ["z"], **attributes),
    ]
    outputs = [helper.make_tensor_value_info(name, kind, None) for name in ("y", "z")]
    always = helper.make_tensor("always", 9, [1], [True])
    graph = helper.make_graph(nodes, "graph", infos, outputs, [always])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString()


def _session(model):
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


def _check(op_type, *arrays, expected=None, **attributes):
    model, feeds = _model(op_type, arrays, **attributes), {f"x{index}": array for index, array in enumerate(arrays)}
    if expected is None:
        expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)[1]
    session = _session(model)
    for _ in range(5):
        for result in session.run(None, feeds):
            assert result.dtype == expected.dtype
            np.testing.assert_array_equal(result, expected)


def _random(dtype, *shape, seed=0):
    return (np.random.default_rng((seed, *shape)).standard_normal(shape) * 50).astype(dtype)


TYPES = [np.float32, np.int64, np.int32, np.float64]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(3, 5, 17), (40, 33, 50), (1, 7)])
def test_elements_along_an_axis(dtype, axis, shape):
    x, axis = _random(dtype, *shape), axis % len(shape)
    count = [size + 2 if other == axis else size for other, size in enumerate(shape)]
    for kind in (np.int64, np.int32):
        indices = np.random.default_rng(1).integers(-shape[axis], shape[axis], count).astype(kind)
        _check("GatherElements", x, indices, axis=axis)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "depth", "batch_dims"),
    [
        ((4, 5, 6), 1, 0),
        ((4, 5, 6), 2, 0),
        ((4, 5, 6), 3, 0),
        ((4, 5, 6), 1, 1),
        ((4, 5, 6, 3), 2, 1),
        ((4, 5, 6, 20), 1, 2),
        ((300, 200), 1, 0),
    ],
)
def test_slices_by_tuples(dtype, shape, depth, batch_dims):
    x, rng = _random(dtype, *shape), np.random.default_rng(1)
    limits = np.array(shape[batch_dims : batch_dims + depth])
    indices = rng.integers(-limits, limits, (*shape[:batch_dims], 7, 3, depth))
    _check("GatherND", x, indices, batch_dims=batch_dims)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_slices_put_by_tuples(dtype, depth):
    shape = (6, 5, 4)
    x, rng = _random(dtype, *shape), np.random.default_rng(1)
    flat = rng.permutation(np.prod(shape[:depth]))[:5]
    indices = np.stack(np.unravel_index(flat, shape[:depth]), axis=-1)
    indices[0] -= shape[:depth]
    _check("ScatterND", x, indices, _random(dtype, 5, *shape[depth:], seed=2))


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("depth", [1, 2])
def test_slices_combined_with_what_is_there(reduction, depth):
    x, rng = _random(np.float32, 6, 5, 40), np.random.default_rng(1)
    indices = rng.integers(0, [6, 5][:depth], (9, depth))
    updates = _random(np.float32, 9, *x.shape[depth:], seed=2)
    updates.flat[3] = np.nan
    expected, functions = x.copy(), {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    for place, update in zip(indices, updates, strict=True):
        expected[tuple(place)] = functions[reduction](expected[tuple(place)], update)
    _check("ScatterND", x, indices, updates, expected=expected, reduction=reduction)


@pytest.mark.parametrize("dtype", [*TYPES, np.uint8])
@pytest.mark.parametrize("time_axis", [0, 1])
@pytest.mark.parametrize("rest", [(), (17,), (3, 4)])
def test_sequences_backwards(dtype, time_axis, rest):
    lengths = np.array([4, 1, 7, 3])
    x = _random(dtype, *((7, 4) if time_axis == 0 else (4, 7)), *rest)
    _check("ReverseSequence", x, lengths, time_axis=time_axis, batch_axis=1 - time_axis)


@pytest.mark.parametrize(
    ("op_type", "arrays", "wrong"),
    [
        ("GatherElements", (_random(np.float32, 4, 5), np.zeros((4, 5), np.int64)), 4),
        ("GatherND", (_random(np.float32, 4, 5), np.zeros((9, 1), np.int64)), -5),
        ("ScatterND", (_random(np.float32, 4, 5), np.zeros((9, 1), np.int64), _random(np.float32, 9, 5)), 4),
        ("ReverseSequence", (_random(np.float32, 4, 3, 5), np.ones(3, np.int64)), 5),
    ],
)
def test_indices_out_of_range_are_refused_each_time(op_type, arrays, wrong):
    session = _session(_model(op_type, arrays))
    feeds = {f"x{index}": array for index, array in enumerate(arrays)}
    expected = session.run(None, feeds)
    bad = arrays[1].copy()
    bad.flat[-1] = wrong
    for _ in range(4):
        for result, first in zip(session.run(None, feeds), expected, strict=True):
            np.testing.assert_array_equal(result, first)
        with pytest.raises(OrtSdkError):
            session.run(None, {**feeds, "x1": bad})
