"""Observing a program: which of its steps are seen, and that nothing else changes."""

import numpy as np
import onnx.parser
import pytest

from ort_sdk.api import OrtSdkError
from ort_sdk.cli.models.building import BuiltModel, build_state
from ort_sdk.run import RunControl, executor

MODEL = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    agraph (float[n, 4] x, int64[1] at) => (float[n, m] y) {
        shape = Shape (x)
        flat = Reshape (x, shape)
        soft = Softmax (flat)
        y = Gather <axis = 1> (soft, at)
    }
""").SerializeToString()
FEEDS = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "at": np.array([1])}


@pytest.fixture
def model():
    built = BuiltModel(build_state(MODEL, [("CPUExecutionProvider", {})], 0))
    for _ in range(3):
        built.run(FEEDS)
    return built


class Tracer:
    def __init__(self):
        self.rows = []

    def __call__(self, step, start_ns, duration_ns):
        self.rows.append((step.op_type, start_ns, duration_ns))


def test_steps_are_observed_in_order_and_without_gaps(model):
    tracer = Tracer()
    (watched,) = model.run(FEEDS, RunControl(program_observer=tracer)).values()
    (plain,) = model.run(FEEDS).values()
    np.testing.assert_array_equal(watched, plain)
    assert [row[0] for row in tracer.rows if row[0] != "Reshape"] == ["Softmax", "Gather"], "what follows from shapes is not run"
    for (_, start, duration), (_, following, _) in zip(tracer.rows, tracer.rows[1:], strict=False):
        assert duration > 0
        assert start + duration == following


def test_an_observer_of_all_steps_sees_all_nodes(model):
    tracer = Tracer()
    model.run(FEEDS, RunControl(observer=tracer))
    assert [row[0] for row in tracer.rows] == ["Shape", "Reshape", "Softmax", "Gather"]


def test_errors_name_the_step(model):
    wrong = FEEDS | {"at": np.array([9])}
    with pytest.raises(OrtSdkError, match="Gather") as watched:
        model.run(wrong, RunControl(program_observer=Tracer()))
    with pytest.raises(OrtSdkError, match="Gather") as plain:
        model.run(wrong)
    assert str(watched.value) == str(plain.value)


def test_a_program_settles(model):
    row = model.settle(FEEDS, 1)
    assert row is not None
    assert {"Softmax", "Gather"} <= set(row.operators)


LOOP = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    agraph (int64 trips, float[n] x) => (float[m] y) {
        more = Constant <value = bool {1}> ()
        looped = Loop (trips, more, x) <body = once (int64 i, bool go, float[k] before) => (bool on, float[k] after) {
            on = Identity (go)
            bent = Tanh (before)
            sorted, order = TopK <axis = 0> (bent, two)
            first = CumSum (sorted, zero)
            after = Softmax (first)
        }>
        y = Softmax (looped)
    }
""")
LOOP.graph.initializer.append(onnx.numpy_helper.from_array(np.array([2]), "two"))
LOOP.graph.initializer.append(onnx.numpy_helper.from_array(np.int64(0), "zero"))


def test_bodies_run_as_without_an_observer(monkeypatch):
    built = BuiltModel(build_state(LOOP.SerializeToString(), [("CPUExecutionProvider", {})], 0))
    feeds = {"trips": np.array(3000), "x": np.array([0.25, 0.5], np.float32)}
    for _ in range(4):
        (plain,) = built.run(feeds).values()
    tracer, stepped = Tracer(), []
    run_steps = executor.run_steps
    monkeypatch.setattr(executor, "run_steps", lambda *arguments: (stepped.append(arguments), run_steps(*arguments)))
    (watched,) = built.run(feeds, RunControl(program_observer=tracer)).values()
    np.testing.assert_array_equal(watched, plain)
    assert [row[0] for row in tracer.rows] == ["Loop", "Softmax"], "the body's time is the loop's"
    assert not stepped
