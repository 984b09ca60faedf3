"""Programs go on behind steps whose outputs' shapes only they know, if these are as before, and run bodies of control flow."""

import json
import threading
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api.errors import OrtSdkError
from tests.models_for_tests import model_bytes, value

node = helper.make_node
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _session(model, *, programs=True):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if not programs:
        options.add_session_config_entry("session.disable_programs", "1")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _reference(model):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


def _picked_model(*, outputs=("y", "shifted", "size")):
    """Elements above zero, and a chain of products on them; an early value and a size leave the model as well."""
    nodes = [
        node("Add", ["x", "one"], ["shifted"]),
        node("Shape", ["x"], ["size"]),
        node("NonZero", ["x"], ["where"]),
        node("Transpose", ["where"], ["places"]),
        node("GatherND", ["shifted", "places"], ["picked"]),
        node("Mul", ["picked", "two"], ["doubled"]),
        node("Sub", ["doubled", "one"], ["lowered"]),
        node("Abs", ["lowered"], ["y"]),
    ]
    kinds = {"y": value("y", ["n"]), "shifted": value("shifted", ["a", "b"]), "size": value("size", [2], INT64)}
    constants = {"one": np.float32(1), "two": np.float32(2)}
    return model_bytes(nodes, [value("x", ["a", "b"])], [kinds[name] for name in outputs], constants)


def _x(seed, shape=(3, 4)):
    x = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return np.where(x > 0.3, x, 0)


def _with_positives(count, shape=(3, 4)):
    """An input of which so many elements are above zero."""
    x = np.zeros(shape, np.float32)
    x.reshape(-1)[:count] = np.arange(1, count + 1)
    return x


def _check(session, reference, x):
    got = session.run(None, {"x": x})
    for wanted, ours in zip(reference.run(None, {"x": x}), got, strict=True):
        np.testing.assert_array_equal(ours, wanted)
    return got


def test_a_program_continues_after_a_shape_that_only_a_run_knows():
    model = _picked_model()
    session, reference = _session(model), _reference(model)
    for _ in range(4):
        _check(session, reference, _x(0))
    (program,) = session.program_report()
    assert {"NonZero", "Sub"} <= set(program.operators)
    assert program.bound_count >= 4


def test_where_a_shape_is_another_what_is_left_runs_by_programs_of_its_own():
    model = _picked_model()
    session, reference = _session(model), _reference(model)
    for count in (5, 5, 5, 2, 2, 2, 5, 0, 0, 0, 2, 5):
        _check(session, reference, _with_positives(count))
    whole, *rests = session.program_report()
    assert "NonZero" in whole.operators
    assert len(rests) == 2
    assert all("Sub" in rest.operators and "NonZero" not in rest.operators for rest in rests)


def test_a_program_ends_where_shapes_vary():
    model = _picked_model()
    session, reference = _session(model), _reference(model)
    for _ in range(8):
        for count in range(12):
            _check(session, reference, _with_positives(count))
    head, *rests = session.program_report()
    assert "NonZero" in head.operators
    assert "Sub" not in head.operators
    assert all("Sub" in rest.operators for rest in rests)


def test_a_program_is_made_anew_for_a_shape_that_stays():
    model = _picked_model()
    session, reference = _session(model), _reference(model)
    for count in (3, 3, *[7] * 100):
        _check(session, reference, _with_positives(count))
    first, *_ = session.program_report()
    assert {"NonZero", "Sub"} <= set(first.operators)
    _check(session, reference, _with_positives(3))
    assert any("Sub" in rest.operators for rest in session.program_report())


def test_what_a_program_left_is_not_overwritten_by_its_next_run():
    model = _picked_model()
    session, reference = _session(model), _reference(model)
    _check(session, reference, _with_positives(5))
    kept = []
    for count in (5, 5, 2, 2, 2, 4, 5, 1, 2):
        x = _with_positives(count) + np.float32(0)
        x[0, 0] *= count + 1
        got = _check(session, reference, x)
        kept.append((got, [array.copy() for array in got]))
    for got, copies in kept:
        for array, copy in zip(got, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
            assert array.flags.writeable


def test_a_profile_has_the_steps_before_and_behind_a_guard_that_fails(tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(_picked_model(), options, providers=["CPUExecutionProvider"])
    for count in (5, 5, 5, 2, 2, 2):
        session.run(None, {"x": _with_positives(count)})
    names = [event["args"].get("op_name") for event in json.loads(Path(session.end_profiling()).read_text())]
    assert names.count("NonZero") == names.count("GatherND") == 6


@pytest.mark.parametrize("last", [5, 2])
def test_errors_behind_a_guard_name_their_step(last):
    nodes = [
        node("NonZero", ["x"], ["where"]),
        node("Transpose", ["where"], ["places"]),
        node("GatherND", ["table", "places"], ["picked"], name="looking_up"),
        node("Mul", ["picked", "picked"], ["doubled"]),
        node("Neg", ["doubled"], ["lowered"]),
        node("Abs", ["lowered"], ["y"]),
    ]
    inputs = [value("x", ["a", "b"]), value("table", ["c", "d"])]
    session = _session(model_bytes(nodes, inputs, [value("y", ["n"])]))
    table = np.ones((3, 4), np.float32)
    for _ in range(4):
        session.run(None, {"x": _with_positives(5), "table": table})
    with pytest.raises(OrtSdkError, match="looking_up"):
        session.run(None, {"x": np.roll(_with_positives(last), 2, axis=1), "table": table[:, :1]})


def test_every_size_gives_its_own_result():
    model = _picked_model()
    session, reference = _session(model), _reference(model)
    kept = []
    for seed in [*range(12), *range(12)]:
        for shape in ((3, 4), (5, 2)):
            feeds = {"x": _x(seed, shape)}
            got = session.run(None, feeds)
            kept.append((got, reference.run(None, feeds)))
    for got, wanted in kept:
        for ours, theirs in zip(got, wanted, strict=True):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.flags.writeable


def test_results_are_the_caller_s_own():
    session = _session(_picked_model())
    feeds = {"x": _x(1)}
    for _ in range(3):
        first = session.run(None, feeds)
    copies = [array.copy() for array in first]
    second = session.run(None, feeds)
    for array in second:
        array[...] = 7
    for array, copy in zip(first, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    for array, copy in zip(session.run(None, feeds), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_runs_at_the_same_time():
    session, reference = _session(_picked_model()), _reference(_picked_model())
    failures = []

    def work(seed):
        feeds = {"x": _x(seed)}
        wanted = reference.run(None, feeds)
        if not all(all(map(np.array_equal, session.run(None, feeds), wanted)) for _ in range(40)):
            failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def _sequence_model():
    """A sequence crosses the place where a shape is not known: the guard is behind it."""
    nodes = [
        node("NonZero", ["x"], ["where"]),
        node("SequenceConstruct", ["where", "where"], ["sequence"]),
        node("Identity", ["sequence"], ["same"]),
        node("ConcatFromSequence", ["same"], ["joined"], axis=0),
        node("Cast", ["joined"], ["floats"], to=FLOAT),
        node("Add", ["floats", "one"], ["a"]),
        node("Mul", ["a", "a"], ["b"]),
        node("Sqrt", ["b"], ["c"]),
        node("Neg", ["c"], ["y"]),
    ]
    return model_bytes(nodes, [value("x", ["a", "b"])], [value("y", [4, "n"])], {"one": np.float32(1)})


def test_sequences_are_not_handed_over():
    session, reference = _session(_sequence_model()), _reference(_sequence_model())
    for seed in (0, 0, 0, 0, 1, 1, 1):
        feeds = {"x": _x(seed)}
        np.testing.assert_array_equal(session.run(None, feeds)[0], reference.run(None, feeds)[0])
    assert len(session.program_report()) > 1


def _loop_model(bounded):
    """A state of fixed size, kept small by ``bounded``, and one that grows; the body reads a value of the main graph."""
    body = helper.make_graph(
        [
            node("Mul", ["state", "factor"], ["scaled"]),
            node("Add", ["scaled", "start"], ["sum"]),
            bounded,
            node("Concat", ["grown", "next"], ["longer"], axis=0),
            node("ReduceSum", ["next"], ["total"], keepdims=0),
            node("Less", ["total", "bound"], ["go_on"]),
            node("Identity", ["next"], ["row"]),
        ],
        "body",
        [
            value("i", [], INT64),
            value("going", [], BOOL),
            value("state", [1, 3]),
            value("grown", ["n", 3]),
        ],
        [value("go_on", [], BOOL), value("next", [1, 3]), value("longer", ["m", 3]), value("row", [1, 3])],
    )
    nodes = [
        node("Mul", ["x", "two"], ["start"]),
        node("Loop", ["trips", "", "x", "start"], ["state_out", "grown_out", "rows"], body=body),
        node("Neg", ["state_out"], ["a"]),
        node("Abs", ["a"], ["b"]),
        node("Add", ["b", "two"], ["c"]),
        node("Mul", ["c", "x"], ["y"]),
    ]
    constants = {name: np.float32(number) for name, number in {"two": 2, "bound": 2.9, "low": -1, "high": 1}.items()}
    constants["factor"] = np.full(3, 0.5, np.float32)
    outputs = [value("y", [1, 3]), value("grown_out", ["k", 3]), value("rows", ["t", 1, 3])]
    return model_bytes(nodes, [value("trips", [], INT64), value("x", [1, 3])], outputs, constants)


CLIPPED, SMOOTHED = node("Clip", ["sum", "low", "high"], ["next"]), node("Tanh", ["sum"], ["next"])


@pytest.mark.parametrize("trips", [0, 1, 2, 7])
@pytest.mark.parametrize(
    ("bounded", "tolerance"),
    # a tanh that is compiled rounds otherwise than NumPy's, and steps alone take only one that is in the folder already
    [pytest.param(CLIPPED, {"rtol": 0, "atol": 0}, id="Clip"), pytest.param(SMOOTHED, {"rtol": 1e-5, "atol": 1e-6}, id="Tanh")],
)
def test_bodies_run_by_programs(trips, bounded, tolerance):
    model = _loop_model(bounded)
    session, steps, reference = _session(model), _session(model, programs=False), _reference(model)
    kept = []
    for seed in range(6):
        x = np.random.default_rng(seed).standard_normal((1, 3), dtype=np.float32)
        feeds = {"trips": np.array(trips), "x": x}
        got = session.run(None, feeds)
        kept.append((got, [array.copy() for array in got]))
        for ours, stepwise, theirs in zip(got, steps.run(None, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours, stepwise, **tolerance)
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    for got, copies in kept:
        for array, copy in zip(got, copies, strict=True):
            np.testing.assert_array_equal(array, copy)


def test_a_body_s_error_names_its_step():
    body = helper.make_graph(
        [
            node("Add", ["state", "one"], ["a"]),
            node("Gather", ["table", "a"], ["b"], name="looking_up"),
            node("Identity", ["going"], ["go_on"]),
            node("Add", ["a", "b"], ["c"]),
            node("Sub", ["c", "b"], ["next"]),
        ],
        "body",
        [value("i", [], INT64), value("going", [], BOOL), value("state", [], INT64)],
        [value("go_on", [], BOOL), value("next", [], INT64)],
    )
    nodes = [node("Loop", ["trips", "", "x"], ["y"], body=body)]
    constants = {"one": np.int64(1), "table": np.zeros(8, np.int64)}
    model = model_bytes(nodes, [value("trips", [], INT64), value("x", [], INT64)], [value("y", [], INT64)], constants)
    session = _session(model)
    feeds = {"trips": np.array(5), "x": np.array(0)}
    for _ in range(3):
        assert session.run(None, feeds)[0] == 5
    with pytest.raises(OrtSdkError, match="looking_up"):
        session.run(None, {**feeds, "trips": np.array(9)})
