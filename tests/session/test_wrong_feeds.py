"""Feeds of every wrong kind: an error of the caller, never one from inside; odd but sound ones run, as in onnxruntime."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk
from ort_sdk.api import InvalidArgument, OrtSdkError
from tests.session import models

X = np.array([[1, 2], [3, 4]], np.float32)


class RaisesAsArray:
    def __array__(self, dtype=None, copy=None):
        raise KeyError("no")


def itself():
    endless = []
    endless.append(endless)
    return endless


@pytest.fixture(scope="module")
def made():
    return ort_sdk.InferenceSession(models.identity(), providers=["CPUExecutionProvider"])


WRONG_VALUES = {
    "nothing": None,
    "objects": np.array([[object()] * 2]),
    "ragged list": [[1, 2], [3]],
    "texts": [["a", "b"]],
    "nested nothing": [[None, 1.0]],
    "list in itself": itself(),
    "number beyond all floats": [[10**400, 1]],
    "set": {1, 2},
    "generator": (number for number in range(2)),
    "text": "abc",
    "bytes": b"abc",
    "memory": memoryview(X),
    "dictionary": {"a": 1},
    "class": np.ndarray,
    "function": len,
    "object whose conversion raises": RaisesAsArray(),
    "other precision": X.astype(np.float64),
    "complex": X.astype(np.complex64),
    "times": np.zeros((2, 2), "M8[s]"),
    "records": np.zeros((2, 2), [("a", "f4")]),
    "other byte order and type": X.astype(">f8"),
    "rank 0": np.float32(1),
    "rank 7": [[[[[[[1]]]]]]],
    "other size": np.ones((2, 3), np.float32),
}


@pytest.mark.parametrize("kind", WRONG_VALUES)
def test_wrong_value(made, kind):
    for _ in range(3):
        with pytest.raises(OrtSdkError, match=r"(?i)input"):
            made.run(None, {"x": WRONG_VALUES[kind]})


@pytest.mark.parametrize("feeds", [None, [], [("x", X)], X, np.zeros(2, [("y", "f4")]), "x", 5])
def test_feeds_that_are_no_mapping(made, feeds):
    with pytest.raises(TypeError, match="dictionary"):
        made.run(None, feeds)


@pytest.mark.parametrize("key", [1, None, b"x", ("x",), float("nan")])
def test_name_that_is_no_text(made, key):
    with pytest.raises(InvalidArgument, match="missing from input feed"):
        made.run(None, {key: X})
    with pytest.raises(TypeError, match="names of inputs are str"):
        made.run(None, {"x": X, key: X})


def read_only():
    fixed = X.copy()
    fixed.flags.writeable = False
    return fixed


@pytest.mark.parametrize(
    "array",
    [
        read_only(),
        np.asfortranarray(X),
        X[::-1],
        np.tile(X, (2, 2))[::2, ::2],
        np.frombuffer(b"\0" * 17, np.uint8)[1:].view(np.float32).reshape(2, 2),
        np.ones((0, 2), np.float32),
        X.tolist(),
    ],
)
def test_odd_arrays_run(session, array):
    (y,) = session(models.identity()).run(None, {"x": array})
    np.testing.assert_array_equal(y, np.asarray(array))
    assert y.flags.writeable


def test_other_byte_order_is_understood(made):
    """onnxruntime takes the bytes as they are and gives nonsense."""
    np.testing.assert_array_equal(made.run(None, {"x": X.astype(">f4")})[0], X)


@pytest.mark.parametrize("fed", [np.ones(1, np.float32), np.ones((1, 1), np.float32), [2.0], np.array(3, np.float32)])
def test_any_rank_where_none_is_declared(session, fed):
    (y,) = session(models.identity(shape=[])).run(None, {"x": fed})
    np.testing.assert_array_equal(y, np.asarray(fed))


@pytest.mark.parametrize("level", [0, 99])
def test_shapes_of_texts_are_checked(level):
    values = [helper.make_tensor_value_info(name, TensorProto.STRING, ["n", 2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    options = ort_sdk.SessionOptions()
    options.graph_optimization_level = ort_sdk.GraphOptimizationLevel(level)
    session = ort_sdk.InferenceSession(model, options)
    for _ in range(3):
        for fed in (np.array([["a", "b", "c"]]), np.array([["a", "b", "c"]], object), [["a", "b", "c"]]):
            with pytest.raises(InvalidArgument, match=r"(?s)invalid dimensions for input: x.*index: 1 Got: 3 Expected: 2"):
                session.run(None, {"x": fed})
        for fed in (np.array(["a", "b"]), np.array(["a", "b"], object), ["a", "b"]):
            with pytest.raises(InvalidArgument, match="Invalid rank for input: x Got: 1 Expected: 2"):
                session.run(None, {"x": fed})
        for fed in (np.array([["a", "b"]]), np.array([["a", "b"]], object), [["a", "b"]]):
            assert session.run(None, {"x": fed})[0].tolist() == [["a", "b"]]
