"""What programs and their making hold is bounded."""

import threading
import weakref

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import InvalidArgument
from ort_sdk.memory import Arena
from ort_sdk.run.program.tracing.tracer import Tracer
from ort_sdk.run.program_memory import ProgramMemory

WIDTH = 1 << 16
KEY = "session.program_memory_limit_bytes"


def _model(*op_types):
    names = ["x", *(f"v{count}" for count in range(len(op_types) - 1)), "y"]
    nodes = [helper.make_node(op, [a], [b]) for op, a, b in zip(op_types, names[:-1], names[1:], strict=True)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    return helper.make_model(helper.make_graph(nodes, "graph", values[:1], values[1:]), ir_version=8).SerializeToString()


def _session(model, limit=None):
    options = ort.SessionOptions()
    if limit is not None:
        options.add_session_config_entry(KEY, limit)
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def test_recording_keeps_no_value_beyond_its_last_reader(monkeypatch):
    made, alive = [], []
    launch = Tracer.launch

    def watched(tracer, step, inputs, outputs):
        launch(tracer, step, inputs, outputs)
        made.extend(weakref.ref(tracer.values[index]) for index in outputs if index)
        alive.append(sum(array() is not None for array in made))

    monkeypatch.setattr(Tracer, "launch", watched)
    session = _session(_model("Sin", "Cos", "Atan", "Tan", "Sin", "Cos", "Atan", "Tan"))
    x = np.linspace(-1, 1, WIDTH, dtype=np.float32)
    results = [session.run(None, {"x": x})[0] for _ in range(4)]
    assert len(alive) >= 8
    assert max(alive) <= 2
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-5)
    assert session.program_report()


def test_programs_of_growing_shapes_are_in_one_piece_of_memory():
    arena = Arena()
    first = arena.reserve(1 << 20)
    first[: 1 << 20] = 1
    second = arena.reserve(5 << 20)
    assert np.may_share_memory(first, second)
    assert arena.nbytes == 5 << 20


def test_memory_of_an_arena_that_had_no_room_counts_as_long_as_it_is_held():
    arena = Arena()
    held = arena.reserve(1 << 20)[64:128]
    arena.reserve(64 << 20)
    assert arena.nbytes == 65 << 20
    del held
    assert arena.nbytes == 64 << 20


class _Set:
    def __init__(self, nbytes):
        self.nbytes = nbytes

    def held_bytes(self):
        return self.nbytes


def test_sets_beyond_the_limit_have_to_go_and_do_not_come_back():
    memory = ProgramMemory(100)
    sets = [_Set(40) for _ in range(3)]
    for programs in sets:
        assert memory.admit(programs)
        memory.count(programs)
    assert memory.held_bytes == 120
    assert memory.is_exceeded
    memory.drop(sets[0])
    assert (memory.held_bytes, memory.is_exceeded, memory.admit(_Set(0))) == (80, False, False)


def test_one_set_is_always_allowed():
    memory = ProgramMemory(0)
    programs = _Set(1 << 40)
    assert memory.admit(programs)
    memory.count(programs)
    assert not memory.is_exceeded
    assert not memory.admit(_Set(0))


@pytest.mark.parametrize("limit", ["", "-1", "1e9", "1 GB", "²"])
def test_a_limit_that_is_no_number_is_refused(limit):
    with pytest.raises(InvalidArgument, match=KEY):
        _session(_model("Sin"), limit)


class _Together:
    """Has three runs of a session look for program sets before any of them gives one back."""

    def __init__(self, monkeypatch, session):
        self.session, self.runner = session, session._runs._runner
        self._barrier, self._admit = threading.Barrier(3), self.runner.memory.admit
        monkeypatch.setattr(self.runner.memory, "admit", self._admitted)

    def _admitted(self, programs):
        self._barrier.wait(10)
        admitted = self._admit(programs)
        self._barrier.wait(10)
        return admitted

    def run(self, x):
        found = []
        threads = [threading.Thread(target=lambda: found.append(self.session.run(None, {"x": x})[0])) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


@pytest.mark.parametrize(("limit", "expected"), [("0", 1), (None, 3)])
def test_runs_at_the_same_time_share_the_limit(monkeypatch, limit, expected):
    together = _Together(monkeypatch, _session(_model("Sin", "Cos", "Atan", "Tan"), limit))
    x = np.linspace(-1, 1, WIDTH, dtype=np.float32)
    found = together.run(x)
    assert len(found) == 3
    for result in found:
        np.testing.assert_allclose(result, np.tan(np.arctan(np.cos(np.sin(x.astype(np.float64))))), rtol=1e-5)
    assert len(together.runner._idle) == expected


def test_sets_that_were_used_least_recently_go_when_others_grow_beyond_the_limit(monkeypatch):
    together = _Together(monkeypatch, _session(_model("Sin", "Cos", "Atan", "Tan")))
    runner, x = together.runner, np.linspace(-1, 1, WIDTH, dtype=np.float32)
    together.run(x)
    last = runner._idle[-1]
    runner.memory.limit_bytes = 1
    together.session.run(None, {"x": x})
    together.session.run(None, {"x": x})
    assert runner._idle == [last]
    assert runner.memory.held_bytes == last.held_bytes() >= x.nbytes
    assert len(together.session.program_report()) == 1


def _loop(*op_types):
    """A Loop of four turns over a body of these operators."""
    names = ["state", *(f"v{count}" for count in range(len(op_types) - 1)), "next"]
    nodes = [helper.make_node(op, [a], [b]) for op, a, b in zip(op_types, names[:-1], names[1:], strict=True)]
    nodes.append(helper.make_node("Identity", ["go on"], ["still"]))
    state = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("state", "next")]
    turn = helper.make_tensor_value_info("turn", TensorProto.INT64, [])
    go_on, still = (helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("go on", "still"))
    body = helper.make_graph(nodes, "body", [turn, go_on, state[0]], [still, state[1]])
    count = helper.make_tensor_value_info("count", TensorProto.INT64, [])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Loop", ["count", "", "x"], ["y"], body=body)], "graph", [count, x], [y])
    return helper.make_model(graph, ir_version=8).SerializeToString()


@pytest.mark.parametrize(("limit", "expected"), [("0", 1), (None, 2)])
def test_bodies_share_the_limit_with_the_graph_around_them(limit, expected):
    session = _session(_loop("Sin", "Cos", "Atan", "Tanh", "Sin"), limit)
    memory = session._runs._runner.memory
    rng = np.random.default_rng(0)
    for turns in (3, 4, 5, 6, 3, 4):
        for width in (WIDTH, WIDTH // 2):
            x = rng.uniform(-1, 1, width).astype(np.float32)
            wanted = x.astype(np.float64)
            for _ in range(turns):
                wanted = np.sin(np.tanh(np.arctan(np.cos(np.sin(wanted)))))
            (found,) = session.run(None, {"count": np.int64(turns), "x": x})
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert len(memory._held) == expected
