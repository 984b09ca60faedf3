"""Times of steps by the device's clock in profiles, and code compiled at once where the host's clock says nothing."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk
from ort_sdk.api import StepFusion, TensorElementType
from ort_sdk.plugins import plugin_manager
from ort_sdk.testing.strict.asynchronous import AsynchronousStrictExecutionProvider
from ort_sdk.testing.strict.provider import STRICT_PROVIDER, STRICT_TYPES, StrictProvider
from tests.session import models

X = np.array([[-1, 2], [3, -4]], np.float32)
MS = 1e3
"""µs, the unit of traces."""


@pytest.fixture(autouse=True)
def strict():
    provider = StrictProvider(STRICT_TYPES - {TensorElementType.DOUBLE}, is_asynchronous=True)
    plugin_manager().register(provider, name="strict")
    yield provider
    plugin_manager().unregister("strict")


def model_bytes():
    """Three nodes on the device, with one on the host between them."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Cast", ["a"], ["wide"], name="widen", to=TensorProto.DOUBLE),
        helper.make_node("Neg", ["a"], ["b"], name="neg"),
        helper.make_node("Abs", ["b"], ["c"], name="abs"),
    ]
    outputs = [models.value("c"), models.value("wide", element_type=TensorProto.DOUBLE)]
    return models.model(nodes, [models.value("x")], outputs).SerializeToString()


def profile(tmp_path, runs=1):
    """Events of a profiled session's nodes, by name, of each run; results are checked."""
    options = ort_sdk.SessionOptions()
    options.enable_profiling = True
    options.graph_optimization_level = ort_sdk.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.profile_file_prefix = str(tmp_path / "trace")
    session = ort_sdk.InferenceSession(model_bytes(), options, providers=[STRICT_PROVIDER])
    for _ in range(runs):
        narrow, wide = session.run(None, {"x": X})
        np.testing.assert_array_equal(narrow, np.maximum(X, 0))
        np.testing.assert_array_equal(wide, np.maximum(X, 0))
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    named = [(event["name"].removesuffix("_kernel_time"), event) for event in events if event["cat"] == "Node"]
    return {name: [event for other, event in named if other == name] for name, _ in named}, events


def test_nodes_take_what_the_device_says(tmp_path, monkeypatch):
    """A device whose clock goes on by a millisecond at each stamp."""
    stamps = []
    monkeypatch.setattr(AsynchronousStrictExecutionProvider, "stamp", lambda _self: stamps.append(0) or len(stamps))
    monkeypatch.setattr(AsynchronousStrictExecutionProvider, "seconds_between", lambda _self, a, b: (b - a) / 1000)
    nodes, _ = profile(tmp_path, runs=2)
    for run in range(2):
        on_device = [nodes[name][run] for name in ("relu", "neg", "abs")]
        assert [event["dur"] for event in on_device] == pytest.approx([MS] * 3)
        assert [event["ts"] - on_device[0]["ts"] for event in on_device] == pytest.approx([0, 2 * MS, 4 * MS], abs=0.01)
        assert {event["tid"] for event in on_device} == {1}
    assert all(event["tid"] > 1 and event["args"]["provider"] == "CPUExecutionProvider" for event in nodes["widen"])


def test_times_are_read_when_the_device_came_there(tmp_path):
    """The strict device refuses to say a time before; nodes follow each other, within the run."""
    nodes, events = profile(tmp_path)
    (run,) = [event for event in events if event["name"] == "model_run"]
    starts = [nodes[name][0]["ts"] for name in ("relu", "neg", "abs")]
    ends = [nodes[name][0]["ts"] + nodes[name][0]["dur"] for name in ("relu", "neg", "abs")]
    assert starts == sorted(starts)
    assert all(end <= start for end, start in zip(ends[:-1], starts[1:], strict=True))
    assert ends[-1] <= run["ts"] + run["dur"] + MS


def test_a_clock_that_fails_is_named(tmp_path, monkeypatch):
    def fails(_self, _start, _end):
        raise OSError("no clock")

    monkeypatch.setattr(AsynchronousStrictExecutionProvider, "seconds_between", fails)
    with pytest.raises(OSError, match=r"no clock.*StrictExecutionProvider when its steps' times were read"):
        profile(tmp_path)


@pytest.mark.parametrize("at_once", [True, False])
def test_code_is_compiled_at_once_where_the_host_sees_no_times(monkeypatch, at_once):
    asked = []

    def fuse_steps(_self, program):
        asked.append(program.may_compile)
        return StepFusion(is_complete=program.may_compile)

    monkeypatch.setattr(AsynchronousStrictExecutionProvider, "compiles_at_once", at_once)
    monkeypatch.setattr(AsynchronousStrictExecutionProvider, "fuse_steps", fuse_steps)
    session = ort_sdk.InferenceSession(models.rectified(), providers=[STRICT_PROVIDER])
    for _ in range(4):
        session.run(None, {"x": X})
    assert asked[0] is at_once
