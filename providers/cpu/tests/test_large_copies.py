"""Large arrays of other layouts: copied by tasks, beside NumPy."""

import numpy as np
import pytest
from onnx import helper, numpy_helper
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

TYPES = [np.float32, np.int64, np.float16, np.uint8, np.bool_]


def _run(nodes, feeds, constants=()):
    """What a session gives in its fourth run, and how many steps are bound then."""
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(next(iter(feeds.values())).dtype)
    initializers = [numpy_helper.from_array(array, name) for name, array in constants]
    graph = helper.make_graph(nodes, "graph", infos, [helper.make_tensor_value_info("y", kind, None)], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    kept = [session.run(None, feeds)[0] for _ in range(4)]
    (row,) = session.program_report()
    assert all(np.array_equal(kept[-1], other) for other in kept)
    return kept[-1], row.bound_count


def _numbers(dtype, *shape):
    return np.random.default_rng(0).integers(0, 2 if dtype is np.bool_ else 200, shape).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "perm"),
    [((300, 500), None), ((1, 64, 90, 70), [0, 2, 3, 1]), ((1, 90, 70, 65), [0, 3, 1, 2]), ((7, 65, 9, 11, 5), [4, 0, 2, 3, 1])],
)
def test_transpositions_that_the_user_gets(dtype, shape, perm):
    x = _numbers(dtype, *shape)
    attributes = {} if perm is None else {"perm": perm}
    result, bound = _run([helper.make_node("Transpose", ["x"], ["y"], **attributes)], {"x": x})
    np.testing.assert_array_equal(result, x.transpose(perm))
    assert result.flags.c_contiguous
    assert bound == (x.nbytes > 124 << 10)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_transposition_whose_rows_keep_their_order_is_a_view(dtype):
    x = _numbers(dtype, 1, 400, 500)
    result, bound = _run([helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0, 2])], {"x": x})
    np.testing.assert_array_equal(result, x.transpose(1, 0, 2))
    assert not bound


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenations(dtype, axis):
    x, y = _numbers(dtype, 3, 300, 200), _numbers(dtype, 3, 300, 200)[::-1].copy()
    result, _ = _run([helper.make_node("Concat", ["x", "z", "x"], ["y"], axis=axis)], {"x": x, "z": y})
    np.testing.assert_array_equal(result, np.concatenate([x, y, x], axis))


@pytest.mark.parametrize("dtype", TYPES)
def test_repetitions_and_blocks(dtype):
    x = _numbers(dtype, 1, 16, 60, 70)
    constants = [("shape", np.array([2, 16, 60, 70])), ("repeats", np.array([1, 1, 2, 3]))]
    nodes = [helper.make_node("Expand", ["x", "shape"], ["y"])]
    np.testing.assert_array_equal(_run(nodes, {"x": x}, constants)[0], np.broadcast_to(x, (2, 16, 60, 70)))
    nodes = [helper.make_node("Tile", ["x", "repeats"], ["y"])]
    np.testing.assert_array_equal(_run(nodes, {"x": x}, constants)[0], np.tile(x, (1, 1, 2, 3)))
    nodes = [helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2)]
    blocks = x.reshape(1, 2, 2, 4, 60, 70).transpose(0, 3, 4, 1, 5, 2)
    np.testing.assert_array_equal(_run(nodes, {"x": x})[0], blocks.reshape(1, 4, 120, 140))
