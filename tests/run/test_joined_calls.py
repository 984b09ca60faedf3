"""Calls that a provider makes one of: what it is given, that all of it runs, and which step is named when it fails."""

import numpy as np
import onnx.parser
import pytest
from ort_sdk_cpu.execution_provider import CpuExecutionProvider

import ort_sdk as ort
from ort_sdk.api import OrtSdkError

MODEL = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    agraph (float[3, 40] x) => (float[3, 40] y) {
        [first] a = Cos (x)
        [second] b = Softmax (a)
        [third] c = CumSum (b, axis)
        [fourth] y = Tan (c)
    }
""")
MODEL.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "axis"))
X = np.linspace(-1, 1, 120, dtype=np.float32).reshape(3, 40)


class Joined:
    """All calls one after the other; the one at ``fails`` raises."""

    fails = None

    def __init__(self, calls):
        self.calls, self.failed = calls, 0

    def __call__(self):
        for position, call in enumerate(self.calls):
            self.failed = position
            if position == self.fails:
                raise OverflowError("too much")
            call()


@pytest.fixture
def session(monkeypatch):
    given = []

    def join_calls(self, calls):
        given.append(len(calls))
        return [(len(calls), Joined(calls))]

    monkeypatch.setattr(CpuExecutionProvider, "join_calls", join_calls)
    made = ort.InferenceSession(MODEL.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = made.run(None, {"x": X})[0]
    for _ in range(3):
        np.testing.assert_allclose(made.run(None, {"x": X})[0], expected, rtol=1e-5)
    assert max(given) > 1
    return made


def test_many_calls_are_one(monkeypatch):
    given = []
    monkeypatch.setattr(
        CpuExecutionProvider, "join_calls", lambda self, calls: given.append(len(calls)) or [(len(calls), Joined(calls))]
    )
    lines = "".join(f"[step{i}] v{i + 1} = CumSum (v{i}, {('rows', 'columns')[i % 2]})\n" for i in range(40))
    graph = f'<ir_version: 10, opset_import: ["" : 21]> g (float[3, 4] v0) => (float[3, 4] v40) {{ {lines} }}'
    model = onnx.parser.parse_model(graph)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(np.array(i), name) for i, name in enumerate(("rows", "columns")))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32) / 64
    expected = x
    for step in range(40):
        expected = expected.cumsum(axis=step % 2)
    for _ in range(3):
        np.testing.assert_allclose(session.run(None, {"v0": x})[0], expected, rtol=1e-3)
    assert given == [40]
    monkeypatch.setattr(Joined, "fails", 33)
    with pytest.raises(OrtSdkError, match="step33"):
        session.run(None, {"v0": x})


def test_the_step_that_failed_is_named(session, monkeypatch):
    monkeypatch.setattr(Joined, "fails", 1)
    with pytest.raises(OrtSdkError, match="second"):
        session.run(None, {"x": X})


def test_another_call_in_place_of_a_single_one(monkeypatch):
    made = []

    def join_calls(self, calls):
        assert len(calls) == 1
        made.append(Joined(calls))
        return [(1, made[-1])]

    monkeypatch.setattr(CpuExecutionProvider, "join_calls", join_calls)
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[3, 4] x) => (float[3, 4] y) { y = Softmax (x) }'
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    expected = session.run(None, {"x": x})[0]
    ran = []
    monkeypatch.setattr(Joined, "__call__", lambda self: ran.append(self) or self.calls[0]())
    for _ in range(4):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-6)
    assert made
    assert ran[-1] is made[-1]
