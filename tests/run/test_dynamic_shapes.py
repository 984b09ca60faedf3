"""Bodies of loops whose state grows are run by one program for all its sizes."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.run.plan_runner import PlanRunner
from ort_sdk.run.program.dynamic_shapes import DynamicKey, DynamicShapes, DynamicSignature
from tests.models_for_tests import model_bytes, value

node = helper.make_node
INT64, BOOL = TensorProto.INT64, TensorProto.BOOL
FLOAT32 = np.dtype(np.float32)


def _decoder(*, reads_all=False, uses_length=False):
    """Rows appended to a state until a number in one is above a limit, each made of the last one, or of all of them."""
    read = (
        node("ReduceMean", ["grown"], ["read"], axes=[1], keepdims=0)
        if reads_all
        else node("Gather", ["grown", "last"], ["read"], axis=1)
    )
    nodes = [
        *(read, node("MatMul", ["read", "weight"], ["product"]), node("Add", ["product", "bias"], ["sum"])),
        *(node("Sigmoid", ["sum"], ["next"]), node("Unsqueeze", ["next", "axes"], ["row"])),
        node("Concat", ["grown", "row"], ["longer"], axis=1),
        *(node("ReduceMax", ["next"], ["largest"], keepdims=0), node("Less", ["largest", "limit"], ["go_on"])),
    ]
    outputs, results = [value("go_on", [], BOOL), value("longer", None)], [value("y", None)]
    if uses_length:
        nodes += [
            *(node("Shape", ["grown"], ["shape"]), node("Cast", ["shape"], ["floats"], to=TensorProto.FLOAT)),
            node("ReduceSum", ["floats"], ["length"], keepdims=0),
        ]
        outputs.append(value("length", []))
        results.append(value("lengths", None))
    inputs = [value("i", [], INT64), value("going", [], BOOL), value("grown", ["b", "n", 4])]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    rng = np.random.default_rng(0)
    constants = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in {"weight": (4, 4), "bias": 4}.items()}
    constants |= {"last": np.int64(-1), "axes": np.array([1])}
    loop = node("Loop", ["count", "", "x"], [result.name for result in results], body=body)
    return model_bytes([loop], [value("x", ["b", "n", 4]), value("limit", []), value("count", [], INT64)], results, constants)


def _session(model):
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


def _body_rows(session):
    (loop,) = [step for step in session._state.plan.steps if step.op_type == "Loop"]
    runner = loop.kernel._body._run_programs.__self__
    assert isinstance(runner, PlanRunner)
    return runner.report()


@pytest.mark.parametrize("reads_all", [False, True])
@pytest.mark.parametrize("uses_length", [False, True])
def test_a_state_that_grows(reads_all, uses_length):
    model = _decoder(reads_all=reads_all, uses_length=uses_length)
    session, reference = _session(model), onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rng, kept = np.random.default_rng(1), []
    for count, batch, length in [(20, 1, 1), (20, 1, 3), (7, 2, 1), (30, 1, 1), (1, 1, 2), (0, 1, 2), (12, 2, 4), (25, 1, 1)]:
        feeds = {"x": rng.random((batch, length, 4), np.float32), "limit": np.array(2, np.float32), "count": np.array(count)}
        got = session.run(None, feeds)
        kept.append((got, [array.copy() for array in got]))
        for ours, theirs in zip(got, reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    for got, copies in kept:
        for array, copy in zip(got, copies, strict=True):
            np.testing.assert_array_equal(array, copy)
    if not uses_length:
        assert any(isinstance(row.signature, DynamicKey) for row in _body_rows(session))


def test_the_program_of_a_growing_state_binds_what_does_not_grow():
    session = _session(_decoder())
    feeds = {"x": np.ones((1, 1, 4), np.float32), "limit": np.array(2, np.float32), "count": np.array(40)}
    for _ in range(3):
        session.run(None, feeds)
    (row,) = _body_rows(session)
    assert isinstance(row.signature, DynamicKey)
    assert row.bound_count >= 3


def test_signatures_that_differ_in_shapes_alone():
    changing = DynamicShapes()
    fixed = ((3,), FLOAT32)
    for size in range(6):
        assert not changing.positions
        changing.see((fixed, ((1, size), FLOAT32)))
    assert changing.positions == {1}
    changing.see((fixed, ((1, 9), np.dtype(np.int64))))
    assert not changing.positions


def test_a_feed_of_another_rank_or_kind_is_not_counted():
    for others in ([((1,) * rank, FLOAT32) for rank in range(1, 6)], [list, ((1,), FLOAT32), None, ((2,), FLOAT32), list]):
        changing = DynamicShapes()
        for other in others:
            changing.see((((3,), FLOAT32), other))
        assert not changing.positions


def test_the_same_signature_again_is_not_counted():
    changing = DynamicShapes()
    for _ in range(8):
        changing.see((((3,), FLOAT32),))
    assert not changing.positions


def test_dynamic_keys_are_equal_for_all_sizes_of_dynamic_feeds_only():
    opened = DynamicSignature(frozenset([1]), {})
    key = opened.key((((3,), FLOAT32), ((1, 5), FLOAT32)))
    assert key == opened.key((((3,), FLOAT32), ((2, 7), FLOAT32)))
    assert key != opened.key((((4,), FLOAT32), ((1, 5), FLOAT32)))
    assert key != opened.key((((3,), FLOAT32), ((1, 5, 1), FLOAT32)))
    assert key != opened.key((((3,), FLOAT32), None))


def test_a_state_that_most_steps_depend_on_is_run_step_by_step():
    """What is made for sizes that vary is not worth keeping."""
    nodes = [
        *(node("Neg", ["grown"], ["a"]), node("Abs", ["a"], ["b"]), node("Sqrt", ["b"], ["c"]), node("Exp", ["c"], ["d"])),
        node("Gather", ["d", "last"], ["row"], axis=0),
        node("Concat", ["grown", "row"], ["longer"], axis=0),
        node("Identity", ["going"], ["go_on"]),
    ]
    inputs = [value("i", [], INT64), value("going", [], BOOL), value("grown", ["n", 4])]
    body = helper.make_graph(nodes, "body", inputs, [value("go_on", [], BOOL), value("longer", None)])
    loop = node("Loop", ["count", "", "x"], ["y"], body=body)
    model = model_bytes([loop], [value("x", ["n", 4]), value("count", [], INT64)], [value("y", None)], {"last": np.array([-1])})
    session, reference = _session(model), onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for count in (12, 9, 12):
        feeds = {"x": np.full((1, 4), 0.1, np.float32), "count": np.array(count)}
        np.testing.assert_allclose(session.run(None, feeds)[0], reference.run(None, feeds)[0], rtol=1e-5)
    assert not any(isinstance(row.signature, DynamicKey) for row in _body_rows(session))
