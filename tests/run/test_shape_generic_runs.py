"""Runs without programs: steps that a provider made of several give what they give one by one, whatever the shapes."""

import numpy as np
import pytest
from onnx import TensorProto

import ort_sdk as ort
from ort_sdk.run.program.shape_generic import RUNS_BEFORE_FUSING

from .test_programs import _session, model_bytes, node, value

SHAPES = [(1, 8, 40, 60 + 8 * step) for step in range(3 * RUNS_BEFORE_FUSING)]


@pytest.fixture(autouse=True)
def _compile_at_once(monkeypatch):
    monkeypatch.setattr("ort_sdk.run.program.shape_generic.SECONDS_BEFORE_COMPILING", 0.0)


def _agree(model: bytes, feeds: list[dict]) -> ort.InferenceSession:
    session, plain = _session(model), _session(model, programs=False)
    for fed in feeds:
        for actual, wanted in zip(session.run(None, fed), plain.run(None, fed), strict=True):
            assert actual.shape == wanted.shape
            np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)
    assert session.program_report() == ()
    return session


def _floats(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _chain() -> bytes:
    nodes = [node("Mul", ["x", "g"], ["a"]), node("Add", ["a", "c"], ["b"]), node("Sigmoid", ["b"], ["s"])]
    nodes += [node("Mul", ["b", "s"], ["y"])]
    four = ["n", "c", "h", "w"]
    inputs = [value("x", four), value("g", four)]
    return model_bytes(nodes, inputs, [value("y", four)], {"c": np.full(1, 0.5, np.float32)})


def test_a_chain_of_any_shape():
    _agree(_chain(), [{"x": _floats(shape), "g": _floats(shape, 1)} for shape in SHAPES])


def test_shapes_that_broadcast_otherwise_than_before():
    other = [(1, 8, 1, 1), (1, 1, 40, 1), (1, 1, 1, 1)]
    feeds = [{"x": _floats(shape), "g": _floats(shape, 1)} for shape in SHAPES]
    feeds += [{"x": _floats((1, 8, 40, 100 + 4 * index)), "g": _floats(shape, 1)} for index, shape in enumerate(other)]
    feeds += [{"x": _floats(shape), "g": _floats((1, 8, 40, 170 + 4 * index), 1)} for index, shape in enumerate(other)]
    _agree(_chain(), feeds)


def test_arrays_that_lie_otherwise_and_empty_ones():
    feeds = [{"x": _floats(shape), "g": _floats(shape, 1)} for shape in SHAPES]
    feeds += [{"x": _floats((1, 60, 50, 8)).transpose(0, 3, 1, 2), "g": _floats((1, 8, 60, 50))}]
    feeds += [{"x": _floats((1, 8, 60, 104))[..., ::2], "g": _floats((1, 8, 60, 52))}]
    feeds += [{"x": _floats((1, 8, 0, 5)), "g": _floats((1, 8, 0, 5))}]
    _agree(_chain(), feeds)


def test_chains_of_single_numbers():
    nodes = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Neg", ["sum"], ["a"]), node("Sigmoid", ["a"], ["y"])]
    model = model_bytes(nodes, [value("x", ["n", "c", "h", "w"])], [value("y", [])])
    _agree(model, [{"x": _floats(shape) / 100} for shape in SHAPES])


def test_several_outputs_of_unlike_shapes():
    nodes = [node("Mul", ["x", "x"], ["small"]), node("Add", ["small", "g"], ["y"]), node("Mul", ["y", "g"], ["z"])]
    four = ["n", "c", "h", "w"]
    outputs = [value(name, four) for name in ("small", "y", "z")]
    model = model_bytes(nodes, [value("x", four), value("g", four)], outputs)
    feeds = [{"x": _floats(shape), "g": _floats(shape, 1)} for shape in SHAPES]
    feeds += [{"x": _floats((1, 8, 40, 1)), "g": _floats((1, 8, 40, 200 + size), 1)} for size in range(3)]
    _agree(model, feeds)


def test_convolutions_and_what_follows_them():
    weights = {
        "w": _floats((16, 8, 3, 3)) / 8,
        "p": _floats((16, 16, 1, 1)) / 4,
        "d": _floats((16, 1, 3, 3)) / 3,
        "three": np.full(1, 3, np.float32),
    }
    weights |= {"three": np.full(1, 3, np.float32), "zero": np.zeros((), np.float32), "six": np.full((), 6, np.float32)}
    nodes = [node("Conv", ["x", "w"], ["a"], pads=[1] * 4), node("Sigmoid", ["a"], ["s"]), node("Mul", ["a", "s"], ["b"])]
    nodes += [node("Conv", ["b", "d"], ["e"], pads=[1] * 4, group=16), node("Add", ["e", "three"], ["f"])]
    nodes += [node("Clip", ["f", "zero", "six"], ["k"]), node("Conv", ["k", "p"], ["l"]), node("Add", ["l", "b"], ["y"])]
    model = model_bytes(nodes, [value("x", ["n", 8, "h", "w"])], [value("y", ["n", 16, "h", "w"])], weights)
    _agree(model, [{"x": _floats(shape)} for shape in SHAPES])


def test_an_addend_that_broadcasts_is_added_one_by_one():
    nodes = [node("Conv", ["x", "w"], ["a"]), node("Add", ["a", "z"], ["y"])]
    model = model_bytes(
        nodes,
        [value("x", ["n", 8, "h", "w"]), value("z", ["n", 16, "i", "j"])],
        [value("y", ["n", 16, "h", "w"])],
        {"w": _floats((16, 8, 1, 1)) / 4},
    )
    feeds = [{"x": _floats(shape), "z": _floats((1, 16, *shape[2:]), 1)} for shape in SHAPES]
    _agree(model, [*feeds, {"x": _floats((1, 8, 50, 70)), "z": _floats((1, 16, 1, 1), 1)}])


def test_steps_that_read_shapes_of_inner_values():
    nodes = [
        node("Mul", ["x", "x"], ["a"]),
        node("Sigmoid", ["a"], ["b"]),
        node("Shape", ["a"], ["s"]),
        node("Expand", ["c", "s"], ["d"]),
    ]
    nodes += [node("Add", ["b", "d"], ["y"])]
    model = model_bytes(nodes, [value("x", ["n", "m"])], [value("y", ["n", "m"])], {"c": np.ones(1, np.float32)})
    _agree(model, [{"x": _floats((200, 90 + size))} for size in range(3 * RUNS_BEFORE_FUSING)])


def test_errors_name_the_steps():
    session = _agree(_chain(), [{"x": _floats(shape), "g": _floats(shape, 1)} for shape in SHAPES])
    with pytest.raises(ort.api.OrtSdkError, match=r"Mul\+Add\+Sigmoid\+Mul node.*CPUExecutionProvider"):
        session.run(None, {"x": _floats((1, 8, 40, 60)), "g": _floats((1, 8, 40, 61))})


def test_integers_beside_floats():
    nodes = [node("Add", ["i", "i"], ["j"]), node("Cast", ["j"], ["f"], to=TensorProto.FLOAT), node("Mul", ["f", "x"], ["a"])]
    nodes += [node("Sigmoid", ["a"], ["b"]), node("Mul", ["a", "b"], ["y"])]
    inputs = [value("i", ["n", "m"], TensorProto.INT64), value("x", ["n", "m"])]
    model = model_bytes(nodes, inputs, [value("y", ["n", "m"])])
    shapes = [(100, 200 + size) for size in range(3 * RUNS_BEFORE_FUSING)]
    _agree(model, [{"i": np.arange(np.prod(shape)).reshape(shape) % 7, "x": _floats(shape)} for shape in shapes])
