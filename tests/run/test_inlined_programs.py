"""Programs have steps in place of control flow and sequences: bodies as often as they run, both branches of a small If."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api.errors import OrtSdkError
from ort_sdk.run.program.program import Program
from tests.models_for_tests import model_bytes, value

node = helper.make_node
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
CONTROL = {"Loop", "Scan", "If"}


def _sequence(name, elem_type=FLOAT):
    return helper.make_tensor_sequence_value_info(name, elem_type, None)


def _check(model, all_feeds, *, runs=4):
    """Results are onnxruntime's in every run; the session."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    kept = []
    for feeds in all_feeds:
        wanted = reference.run(None, feeds)
        kept += [(session.run(None, feeds), wanted) for _ in range(runs)]
    for got, wanted in kept:
        for ours, theirs in zip(got, wanted, strict=True):
            assert type(ours) is type(theirs)
            for a, b in zip(ours, theirs, strict=True) if isinstance(theirs, list) else [(ours, theirs)]:
                assert a.dtype == b.dtype
                assert a.shape == b.shape
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return session


def _operators(session):
    return [operator for row in session.program_report() for operator in row.operators]


def _x(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def _counting_body(condition, *, extra=(), outputs=(), inputs=()):
    """x + i, and whatever else."""
    nodes = [
        node("Cast", ["i"], ["number"], to=FLOAT),
        node("Add", ["state", "number"], ["next"]),
        *condition,
        *extra,
    ]
    return helper.make_graph(
        nodes,
        "body",
        [value("i", [], INT64), value("going", [], BOOL), value("state", None), *inputs],
        [value("go_on", [], BOOL), value("next", None), *outputs],
    )


ALWAYS = (node("Identity", ["going"], ["go_on"]),)


def _constant_trips(trips, **initial):
    return {"trips": np.int64(trips), **initial}


@pytest.mark.parametrize("trips", [0, 1, 5, -3])
def test_a_loop_of_known_trips(trips):
    body = _counting_body(ALWAYS, extra=[node("Mul", ["next", "x"], ["row"])], outputs=[value("row", [2, 3])])
    nodes = [node("Loop", ["trips", "", "x"], ["last", "rows"], body=body), node("Neg", ["last"], ["y"])]
    outputs = [value("y", [2, 3]), value("rows", None)]
    model = model_bytes(nodes, [value("x", [2, 3])], outputs, _constant_trips(trips))
    session = _check(model, [{"x": _x(2, 3)}, {"x": _x(2, 3, seed=1)}])
    assert not CONTROL.intersection(_operators(session))


@pytest.mark.parametrize(("start", "trips"), [(False, 4), (True, 9), (True, 2)])
def test_a_condition_that_is_known(start, trips):
    """False at once, in the middle, and not before the trips are over; a trip count in one dimension."""
    stop = (node("Less", ["i", "last_one"], ["go_on"]),)
    nodes = [node("Loop", ["trips", "start", "x"], ["y"], body=_counting_body(stop))]
    constants = {"trips": np.array([trips]), "start": np.array(start), "last_one": np.int64(5)}
    session = _check(model_bytes(nodes, [value("x", [4])], [value("y", [4])], constants), [{"x": _x(4)}])
    assert not CONTROL.intersection(_operators(session))


def test_a_loop_that_a_carried_number_ends():
    body = helper.make_graph(
        [
            node("Add", ["count", "one"], ["counted"]),
            node("Less", ["counted", "limit"], ["go_on"]),
            node("Add", ["state", "state"], ["next"]),
        ],
        "body",
        [value("i", [], INT64), value("going", [], BOOL), value("count", [], INT64), value("state", [3])],
        [value("go_on", [], BOOL), value("counted", [], INT64), value("next", [3])],
    )
    nodes = [
        node("Shape", ["x"], ["limits"]),
        node("Gather", ["limits", "zero"], ["limit"], axis=0),
        node("Loop", ["endless", "", "zero", "x"], ["n", "y"], body=body),
    ]
    constants = {"one": np.int64(1), "zero": np.int64(0), "endless": np.int64(2**63 - 1)}
    model = model_bytes(nodes, [value("x", ["n"])], [value("n", [], INT64), value("y", ["n"])], constants)
    session = _check(model, [{"x": _x(3)}, {"x": _x(6)}])
    assert not CONTROL.intersection(_operators(session))


def test_a_condition_that_only_a_run_knows_stays_a_loop():
    stop = (node("ReduceSum", ["next"], ["sum"], keepdims=0), node("Less", ["sum", "bound"], ["go_on"]))
    body = _counting_body(stop, extra=[node("Identity", ["next"], ["row"])], outputs=[value("row", [3])])
    nodes = [node("Loop", ["trips", "", "x"], ["y", "rows"], body=body)]
    model = model_bytes(nodes, [value("x", [3])], [value("y", [3]), value("rows", None)], _constant_trips(8, bound=np.float32(6)))
    feeds = [{"x": np.full(3, start, np.float32)} for start in (-9, -2, 0, 1, 30)]
    assert "Loop" in _operators(_check(model, feeds))


def test_more_steps_than_a_program_may_have():
    nodes = [node("Loop", ["trips", "", "x"], ["y"], body=_counting_body(ALWAYS))]
    model = model_bytes(nodes, [value("x", [3])], [value("y", [3])], _constant_trips(3000))
    assert "Loop" in _operators(_check(model, [{"x": _x(3)}]))


def test_values_that_grow_and_positions_that_are_counted():
    body = _counting_body(
        ALWAYS,
        extra=[
            node("Gather", ["table", "i"], ["picked"], axis=1),
            node("Unsqueeze", ["picked", "zero"], ["row"]),
            node("Concat", ["grown", "row"], ["longer"], axis=0),
        ],
        inputs=[value("grown", None)],
        outputs=[value("longer", None)],
    )
    nodes = [
        node("Add", ["x", "x"], ["table"]),
        node("Loop", ["trips", "", "x", "none"], ["last", "rows"], body=body),
    ]
    constants = _constant_trips(4, zero=np.array([0]), none=np.zeros((0, 3), np.float32))
    outputs = [value("last", [3, 5]), value("rows", None)]
    session = _check(model_bytes(nodes, [value("x", [3, 5])], outputs, constants), [{"x": _x(3, 5)}, {"x": _x(3, 5, seed=4)}])
    assert not CONTROL.intersection(_operators(session))


def test_a_position_outside_is_an_error_in_every_run():
    body = _counting_body(
        ALWAYS, extra=[node("Gather", ["x", "i"], ["row"], axis=0, name="looking")], outputs=[value("row", None)]
    )
    nodes = [node("Loop", ["trips", "", "x"], ["y", "rows"], body=body)]
    model = model_bytes(nodes, [value("x", ["n"])], [value("y", ["n"]), value("rows", None)], _constant_trips(4))
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(4):
        with pytest.raises(OrtSdkError, match="looking"):
            session.run(None, {"x": _x(3)})
    assert session.run(None, {"x": _x(4)})[1].shape == (4,)


def test_scan_outputs_of_different_shapes_are_an_error_in_every_run():
    body = _counting_body(
        ALWAYS,
        extra=[node("Concat", ["grown", "state"], ["longer"], axis=0), node("Identity", ["longer"], ["row"])],
        inputs=[value("grown", None)],
        outputs=[value("longer", None), value("row", None)],
    )
    nodes = [node("Loop", ["trips", "", "x", "x"], ["y", "z", "rows"], body=body)]
    outputs = [value("y", None), value("z", None), value("rows", None)]
    model = model_bytes(nodes, [value("x", [3])], outputs, _constant_trips(3))
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(3):
        with pytest.raises(OrtSdkError, match="in iteration 1"):
            session.run(None, {"x": _x(3)})


def test_a_loop_in_a_loop():
    inner = helper.make_graph(
        [
            node("Cast", ["j"], ["n"], to=FLOAT),
            node("Mul", ["inner", "x"], ["p"]),
            node("Add", ["p", "n"], ["q"]),
            node("Add", ["q", "number"], ["inner_next"]),
            node("Identity", ["inner_going"], ["inner_on"]),
        ],
        "inner",
        [value("j", [], INT64), value("inner_going", [], BOOL), value("inner", [3])],
        [value("inner_on", [], BOOL), value("inner_next", [3])],
    )
    body = _counting_body(
        ALWAYS,
        extra=[node("Loop", ["i", "", "next"], ["row"], body=inner)],
        outputs=[value("row", [3])],
    )
    nodes = [node("Loop", ["trips", "", "x"], ["y", "rows"], body=body)]
    model = model_bytes(nodes, [value("x", [3])], [value("y", [3]), value("rows", None)], _constant_trips(4))
    assert not CONTROL.intersection(_operators(_check(model, [{"x": _x(3)}, {"x": _x(3, seed=7)}])))


def _sequence_model(trips):
    """Rows of different sizes are put in front, behind and in between; taken out; read, and joined."""
    body = helper.make_graph(
        [
            node("Add", ["i", "one"], ["end"]),
            node("Unsqueeze", ["end", "axis"], ["ends"]),
            node("Slice", ["x", "axis", "ends"], ["part"]),
            node("SequenceInsert", ["rows", "part", "axis_number"], ["more"]),
            node("SequenceInsert", ["more", "part"], ["rows_next"]),
            node("Identity", ["going"], ["go_on"]),
        ],
        "body",
        [value("i", [], INT64), value("going", [], BOOL), _sequence("rows")],
        [value("go_on", [], BOOL), _sequence("rows_next")],
    )
    nodes = [
        node("SequenceEmpty", [], ["empty"]),
        node("Loop", ["trips", "", "empty"], ["rows_out"], body=body),
        node("SequenceConstruct", ["x", "x"], ["both"]),
        node("SequenceInsert", ["both", "x", "axis_number"], ["three"]),
        node("SequenceErase", ["three", "minus_one"], ["two"]),
        node("SequenceAt", ["two", "minus_one"], ["same"]),
        node("SequenceLength", ["rows_out"], ["count"]),
        node("ConcatFromSequence", ["two"], ["stacked"], axis=-1, new_axis=1),
    ]
    outputs = [_sequence("rows_out"), value("same", None), value("count", [], INT64), value("stacked", None)]
    if trips:
        nodes.append(node("ConcatFromSequence", ["rows_out"], ["joined"], axis=0))
        outputs.append(value("joined", None))
    constants = _constant_trips(trips, one=np.int64(1), axis=np.array([0]), axis_number=np.int64(0), minus_one=np.int64(-1))
    return model_bytes(nodes, [value("x", ["n", 2])], outputs, constants)


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_sequences_of_known_structure(trips):
    session = _check(_sequence_model(trips), [{"x": _x(5, 2)}, {"x": _x(5, 2, seed=3)}, {"x": _x(4, 2)}])
    operators = _operators(session)
    assert not CONTROL.intersection(operators)
    assert not {"SequenceInsert", "SequenceAt", "SequenceErase", "ConcatFromSequence"}.intersection(operators)


SPLITS = [(attributes, split) for attributes in ({"axis": 1}, {"axis": 0}) for split in (None, np.int64(2), "sizes")]


@pytest.mark.parametrize(("attributes", "split"), [*SPLITS, ({"axis": -1, "keepdims": 0}, None)])
def test_a_tensor_split_to_a_sequence(attributes, split):
    length = 3 if attributes["axis"] == 0 else 5
    constants = {"place": np.int64(1)}
    if split is not None:
        constants["split"] = np.array([1, length - 1]) if isinstance(split, str) else split
    nodes = [
        node("Neg", ["x"], ["z"]),
        node("SplitToSequence", ["z", "split"] if split is not None else ["z"], ["parts"], **attributes),
        node("SequenceAt", ["parts", "place"], ["part"]),
        node("Abs", ["part"], ["y"]),
    ]
    model = model_bytes(nodes, [value("x", [3, 5])], [value("y", None), _sequence("parts")], constants)
    session = _check(model, [{"x": _x(3, 5)}, {"x": _x(3, 5, seed=1)}])
    assert "SplitToSequence" not in _operators(session)


def _branch(name, nodes, outputs):
    return helper.make_graph(nodes, name, [], outputs)


@pytest.mark.parametrize("in_sequence", [False, True])
def test_an_if_in_a_loop_takes_both_branches(in_sequence):
    """The condition depends on the values; the branches' results are of one shape."""
    kind = _sequence if in_sequence else lambda name: value(name, None)

    def ending(name):
        return [node("SequenceInsert" if in_sequence else "Add", ["rows", name], [f"{name}_out"])]

    then = _branch("then", [node("Mul", ["picked", "factor"], ["a"]), *ending("a")], [kind("a_out")])
    other = _branch("else", [node("Clip", ["picked", "low"], ["b"]), *ending("b")], [kind("b_out")])
    body = helper.make_graph(
        [
            node("Gather", ["x", "i"], ["picked"], axis=0),
            node("ReduceSum", ["picked"], ["sum"], keepdims=0),
            node("Greater", ["sum", "low"], ["is_high"]),
            node("If", ["is_high"], ["rows_next"], then_branch=then, else_branch=other),
            node("Identity", ["going"], ["go_on"]),
        ],
        "body",
        [value("i", [], INT64), value("going", [], BOOL), kind("rows")],
        [value("go_on", [], BOOL), kind("rows_next")],
    )
    start = [node("SequenceEmpty", [], ["start"])] if in_sequence else [node("Identity", ["zeros"], ["start"])]
    end = [node("ConcatFromSequence", ["rows"], ["y"], axis=0, new_axis=1)] if in_sequence else [node("Neg", ["rows"], ["y"])]
    nodes = [*start, node("Loop", ["trips", "", "start"], ["rows"], body=body), *end]
    constants = _constant_trips(6, factor=np.float32(3), low=np.float32(0), zeros=np.zeros(4, np.float32))
    model = model_bytes(nodes, [value("x", [6, 4])], [value("y", None)], constants)
    session = _check(model, [{"x": _x(6, 4, seed=seed)} for seed in range(4)])
    assert not CONTROL.intersection(_operators(session))


@pytest.mark.parametrize("start", ["high", "low"])
def test_branches_of_different_shapes_stay_an_if(start):
    then = _branch("then", [node("Neg", ["x"], ["a"])], [value("a", None)])
    other = _branch("else", [node("Concat", ["x", "x"], ["b"], axis=0)], [value("b", None)])
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["is_high"]),
        node("If", ["is_high"], ["y"], then_branch=then, else_branch=other),
    ]
    model = model_bytes(nodes, [value("x", [3])], [value("y", None)], {"zero": np.float32(0)})
    feeds = [{"x": np.full(3, number, np.float32)} for number in (1, -1)]
    session = _check(model, feeds if start == "high" else feeds[::-1])
    assert "If" in _operators(session)


def test_a_branch_that_fails_is_not_taken_unless_it_is_chosen():
    """Reading behind the end of a table, and dividing integers by zero."""
    far = _branch("then", [node("Gather", ["table", "place"], ["a"])], [value("a", [], INT64)])
    near = _branch("else", [node("Div", ["one", "x"], ["b"])], [value("b", [], INT64)])
    nodes = [
        node("Greater", ["x", "three"], ["is_large"]),
        node("If", ["is_large"], ["y"], then_branch=far, else_branch=near),
    ]
    constants = {"table": np.arange(3), "place": np.int64(7), "one": np.int64(1), "three": np.int64(3)}
    model = model_bytes(nodes, [value("x", [], INT64)], [value("y", [], INT64)], constants)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(4):
        assert session.run(None, {"x": np.array(1)})[0] == 1
    with pytest.raises(OrtSdkError):
        session.run(None, {"x": np.array(4)})


def test_an_if_of_a_number_that_varies_gives_the_caller_s_own_arrays():
    then = _branch("then", [node("Identity", ["x"], ["a"])], [value("a", None)])
    other = _branch("else", [node("Neg", ["x"], ["b"])], [value("b", None)])
    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=1),
        node("Greater", ["sum", "zero"], ["is_high"]),
        node("If", ["is_high"], ["y"], then_branch=then, else_branch=other),
    ]
    model = model_bytes(nodes, [value("x", [3])], [value("y", None)], {"zero": np.float32(0)})
    session = _check(model, [{"x": np.full(3, number, np.float32)} for number in (1, -1)])
    x = np.ones(3, np.float32)
    (first,) = session.run(None, {"x": x})
    first[...] = 7
    np.testing.assert_array_equal(x, 1)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], 1)


def test_outputs_of_no_trips_are_the_caller_s_own():
    nodes = [node("Loop", ["trips", "", "x"], ["y"], body=_counting_body(ALWAYS))]
    model = model_bytes(nodes, [value("x", [4])], [value("y", [4])], _constant_trips(0))
    session = _check(model, [{"x": _x(4)}])
    x = np.ones(4, np.float32)
    (y,) = session.run(None, {"x": x})
    y[...] = 5
    np.testing.assert_array_equal(x, 1)


def _repeating_model():
    """A row of the input as often as a number says, put in a sequence; and as a scan output."""
    body = helper.make_graph(
        [
            node("Gather", ["x", "i"], ["row"], axis=0),
            node("Gather", ["counts", "i"], ["count"], axis=0),
            node("Unsqueeze", ["count", "axis"], ["repeats"]),
            node("Concat", ["repeats", "one"], ["shape"], axis=0),
            node("Expand", ["row", "shape"], ["part"]),
            node("SequenceInsert", ["rows", "part"], ["rows_next"]),
            node("Identity", ["going"], ["go_on"]),
        ],
        "body",
        [value("i", [], INT64), value("going", [], BOOL), _sequence("rows")],
        [value("go_on", [], BOOL), _sequence("rows_next"), value("part", None)],
    )
    nodes = [
        node("SequenceEmpty", [], ["empty"]),
        node("Loop", ["trips", "", "empty"], ["rows_out", "all"], body=body),
        node("ConcatFromSequence", ["rows_out"], ["joined"], axis=0),
        node("Abs", ["joined"], ["y"]),
    ]
    constants = _constant_trips(3, axis=np.array([0]), one=np.array([1]))
    inputs = [value("x", [3, 4]), value("counts", [3], INT64)]
    return model_bytes(nodes, inputs, [value("y", None), value("all", None)], constants)


def test_a_loop_in_which_shapes_are_not_known():
    all_feeds = [{"x": _x(3, 4, seed=count), "counts": np.full(3, count)} for count in (2, 2, 5, 1)]
    session = _check(_repeating_model(), all_feeds)
    assert not CONTROL.intersection(_operators(session))
    for _ in range(2):
        with pytest.raises(OrtSdkError, match="in iteration 1"):
            session.run(None, {"x": _x(3, 4), "counts": np.array([1, 3, 2])})


def test_programs_of_many_steps_are_made_for_signatures_that_come_often():
    """The first signature gets one when it is seen again; others wait for as long as making one takes."""
    nodes = [node("Loop", ["trips", "", "x"], ["y"], body=_counting_body(ALWAYS))]
    model = model_bytes(nodes, [value("x", ["n"])], [value("y", ["n"])], _constant_trips(400))
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for length, runs, programs in ((3, 2, 1), (4, 3, 1), (5, 3, 1), (4, 20, 2)):
        for _ in range(runs):
            np.testing.assert_array_equal(session.run(None, {"x": np.zeros(length, np.float32)})[0], np.full(length, 79800))
        assert len(session.program_report()) == programs


def _growing_list():
    """Each turn puts a row made of the last one into a list; how many turns there are is data."""
    body = helper.make_graph(
        [
            node("Identity", ["going"], ["goes_on"]),
            node("Tanh", ["row"], ["bounded"]),
            node("Add", ["bounded", "x"], ["sum"]),
            node("Mul", ["sum", "half"], ["row_next"]),
            node("SequenceInsert", ["rows", "row_next"], ["more"]),
        ],
        "body",
        [value("turn", [], INT64), value("going", [], BOOL), value("row", [4]), _sequence("rows")],
        [value("goes_on", [], BOOL), value("row_next", [4]), _sequence("more")],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["turns", "", "x", "none"], ["last", "rows_found"], body=body),
        node("ConcatFromSequence", ["rows_found"], ["all"], axis=0, new_axis=1),
    ]
    given = [value("x", [4]), value("turns", [], INT64)]
    return model_bytes(nodes, given, [value("last", [4]), value("all", None)], {"half": np.float32([0.5])})


def test_bodies_that_lengthen_a_list_are_run_by_programs(monkeypatch):
    made = []
    run = Program.run

    def noting(self, *arguments):
        made.append(self.operators)
        return run(self, *arguments)

    monkeypatch.setattr(Program, "run", noting)
    feeds = [{"x": np.float32([1, -2, 3, 0.5]) * turns, "turns": np.array(turns)} for turns in (3, 9, 1, 5)]
    _check(_growing_list(), feeds, runs=1)
    bodies = [operators for operators in made if "SequenceInsert" in operators]
    assert len(bodies) > sum(fed["turns"] for fed in feeds) // 2


def test_lists_of_any_length_are_one_signature():
    nodes = [node("SequenceLength", ["rows"], ["count"]), node("SequenceAt", ["rows", "count_less"], ["y"])]
    nodes.insert(1, node("Sub", ["count", "one"], ["count_less"]))
    model = model_bytes(nodes, [_sequence("rows")], [value("y", None)], {"one": np.array(1)})
    rows = [np.arange(size, dtype=np.float32) for size in (1, 4, 2, 5)]
    session = _check(model, [{"rows": rows[:count]} for count in (2, 4, 1, 3)], runs=2)
    assert [row.signature for row in session.program_report()] == [(list,)]


def _scan(**attributes):
    """Sums of rows, the rows' products with them, and a matrix that is handed on."""
    nodes = [
        node("Add", ["state", "row"], ["next"]),
        node("Mul", ["next", "other"], ["product"]),
        node("Identity", ["whole"], ["same"]),
    ]
    names = ("state", "whole", "row", "other")
    body = helper.make_graph(nodes, "body", [value(name, None) for name in names], [value(name, None) for name in OUT])
    scan = node("Scan", ["x", "matrix", "rows", "columns"], ["last", "kept", "all"], body=body, num_scan_inputs=2, **attributes)
    inputs = [value("x", [3]), value("matrix", [2, 2]), value("rows", ["n", 3]), value("columns", [3, "m"])]
    return model_bytes([scan], inputs, [value(name, None) for name in ("last", "kept", "all")])


OUT = ("next", "same", "product")


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("length", [1, 6])
def test_a_scan_of_a_known_length(length, backward):
    directions = {"scan_input_directions": [backward, 0], "scan_output_directions": [backward]}
    model = _scan(scan_input_axes=[0, -1], scan_output_axes=[-1], **directions)
    feeds = [{"x": _x(3, seed=s), "matrix": _x(2, 2), "rows": _x(length, 3, seed=s), "columns": _x(3, length)} for s in (0, 1)]
    assert not CONTROL.intersection(_operators(_check(model, feeds)))


def test_a_scan_of_inputs_of_different_lengths_is_an_error_in_every_run():
    session = ort.InferenceSession(_scan(scan_input_axes=[0, 1]), providers=["CPUExecutionProvider"])
    for _ in range(3):
        with pytest.raises(OrtSdkError, match="lengths"):
            session.run(None, {"x": _x(3), "matrix": _x(2, 2), "rows": _x(4, 3), "columns": _x(3, 5)})
