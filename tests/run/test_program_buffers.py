"""Results of programs whose values lie in fixed buffers: views made once, small results handed out as copies."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import ort_sdk


def session_of(nodes, outputs, shape):
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    constants = [helper.make_tensor("axis", TensorProto.INT64, [1], [0])]
    graph = helper.make_graph(nodes, "buffers", inputs, values, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return ort_sdk.InferenceSession(onnx.shape_inference.infer_shapes(model).SerializeToString())


NODES = [
    helper.make_node("Neg", ["x"], ["a"]),
    helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
    helper.make_node("Unsqueeze", ["b", "axis"], ["c"]),
    helper.make_node("Abs", ["c"], ["d"]),
    helper.make_node("Squeeze", ["d", "axis"], ["e"]),
]


@pytest.mark.parametrize("outputs", [["e"], ["d"], ["a", "d"], ["b", "d"], ["a", "b", "c", "d", "e"], ["c", "e"]])
@pytest.mark.parametrize("size", [3, 300, 7000, 9000])
def test_results_stay(outputs, size):
    session = session_of(NODES, outputs, [size, 4])
    kept = []
    for seed in range(6):
        x = np.random.default_rng(seed).standard_normal((size, 4)).astype(np.float32)
        everything = {"a": -x, "b": -x.T, "c": -x.T[None], "d": abs(x.T)[None], "e": abs(x.T)}
        kept.append((session.run(outputs, {"x": x}), [everything[name] for name in outputs]))
    for found, expected in kept:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_results_are_the_users_to_write():
    session = session_of(NODES, ["a", "d"], [3, 4])
    x = np.ones((3, 4), np.float32)
    for _ in range(4):
        for result in session.run(None, {"x": x}):
            result.fill(7)
    np.testing.assert_array_equal(session.run(None, {"x": x})[1], np.ones((1, 4, 3), np.float32))


OF_FEEDS = [
    helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
    helper.make_node("Unsqueeze", ["a", "axis"], ["b"]),
    helper.make_node("Neg", ["b"], ["c"]),
    helper.make_node("Add", ["x", "x"], ["d"]),
    helper.make_node("Identity", ["x"], ["e"]),
]


@pytest.mark.parametrize("outputs", [["c"], ["a", "c"], ["b", "d"], ["e", "d"], ["a", "b", "c", "d", "e"], ["a"], ["e"]])
@pytest.mark.parametrize("layout", ["row-major", "other"])
@pytest.mark.parametrize("size", [3, 300, 7000, 9000])
def test_feeds_may_change_between_runs(outputs, layout, size):
    """Neither what a run gave nor what the user fed is touched by later runs, whoever copies what."""
    session = session_of(OF_FEEDS, outputs, [size, 4])
    kept = []
    x = np.zeros((size, 4), np.float32) if layout == "row-major" else np.zeros((4, size), np.float32).T
    for seed in range(6):
        x[...] = fed = np.random.default_rng(seed).standard_normal((size, 4)).astype(np.float32)
        everything = {"a": fed.T, "b": fed.T[None], "c": -fed.T[None], "d": 2 * fed, "e": fed}
        found = session.run(outputs, {"x": x})
        np.testing.assert_array_equal(x, fed)
        kept.append((found, [everything[name] for name in outputs]))
    for found, expected in kept:
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_outputs_that_become_maps_are_in_a_buffer():
    scores = helper.make_node("Normalizer", ["x"], ["scores"], domain="ai.onnx.ml", norm="L1")
    maps = helper.make_node("ZipMap", ["scores"], ["maps"], domain="ai.onnx.ml", classlabels_strings=["a", "b"])
    kind = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    graph = helper.make_graph(
        [scores, maps],
        "maps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])],
        [helper.make_value_info("maps", helper.make_sequence_type_proto(kind))],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    session = ort_sdk.InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    kept = [session.run(None, {"x": np.array([[1, 3 + run], [2, 2]], np.float32)})[0] for run in range(5)]
    for run, found in enumerate(kept):
        assert found == [{"a": pytest.approx(1 / (4 + run)), "b": pytest.approx((3 + run) / (4 + run))}, {"a": 0.5, "b": 0.5}]


@pytest.mark.parametrize("indices", [[1], [1, 2], [2, 1], [0, 0]])
@pytest.mark.parametrize("dtype", [np.float32, object])
def test_features_taken_are_the_users_to_write(indices, dtype):
    kind = TensorProto.STRING if dtype is object else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("ArrayFeatureExtractor", ["x", "indices"], ["y"], domain="ai.onnx.ml")],
        "features",
        [helper.make_tensor_value_info("x", kind, [None, 3])],
        [helper.make_tensor_value_info("y", kind, None)],
        [helper.make_tensor("indices", TensorProto.INT64, [len(indices)], indices)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    session = ort_sdk.InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    x = np.arange(6).reshape(2, 3).astype(str if dtype is object else dtype).astype(dtype)
    before = x.copy()
    for _ in range(4):
        (found,) = session.run(None, {"x": x})
        np.testing.assert_array_equal(found, before[:, indices])
        found.fill(found[0, 0])
        np.testing.assert_array_equal(x, before)


class Undeclared:
    """A kernel that hands on its input, and does not say so."""

    deterministic, shape_inputs = True, ()

    def compute(self, x):
        return x[...]


def test_a_view_that_no_kernel_declares_is_seen():
    chain = [helper.make_node("CumSum", [source, "axis"], [target]) for source, target in ("ac", "cd", "de", "ef", "fg")]
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Cosh", ["a"], ["b"]), *chain]
    session = session_of([*nodes, helper.make_node("Sub", ["g", "b"], ["y"])], ["y"], [3, 4])
    (step,) = [step for step in session._state.plan.steps if step.op_type == "Cosh"]
    step.kernel, step.aliases = Undeclared(), ()
    step.compute = step.kernel.compute
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((3, 4)).astype(np.float32)
        expected = -x
        for _ in chain:
            expected = np.cumsum(expected, axis=0)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected + x, rtol=1e-5, atol=1e-5)
    assert session.program_report()[0].bound_count >= 6
