"""EmbeddingBag as exporters write it: a Loop over slices of a list of indices, each reduced to one row."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk as ort
from ort_sdk.api.errors import OrtSdkError

node = helper.make_node
INT64 = TensorProto.INT64
ROWS, COLUMNS = 50, 37


@pytest.fixture(autouse=True)
def _tasks_for_few_elements(monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.kernel.task_writer.MIN_ELEMENTS", 1)


def _value(name, shape, element_type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element_type, shape)


def _model(op_type, opset, *, weight_input=False, gather_axis=0):
    axes_as_input = opset >= 18 or (opset >= 13 and op_type == "ReduceSum")
    reduction = node(
        op_type, ["rows", "axes"] if axes_as_input else ["rows"], ["bag"], keepdims=0, **({} if axes_as_input else {"axes": [0]})
    )
    body = helper.make_graph(
        [
            node("Gather", ["bounds", "i"], ["start"], axis=0),
            node("Gather", ["ends", "i"], ["end"], axis=0),
            node("Unsqueeze", ["start", "zero"], ["starts"]),
            node("Unsqueeze", ["end", "zero"], ["stops"]),
            node("Slice", ["numbers", "starts", "stops", "zero"], ["part"]),
            node("Gather", ["table", "part"], ["rows"], axis=gather_axis),
            reduction,
            node("Identity", ["going"], ["go_on"]),
        ],
        "body",
        [_value("i", [], INT64), _value("going", [], TensorProto.BOOL)],
        [_value("go_on", [], TensorProto.BOOL), _value("bag", None)],
    )
    nodes = [
        node("Shape", ["numbers"], ["count"]),
        node("Concat", ["offsets", "count"], ["bounds"], axis=0),
        node("Slice", ["bounds", "one", "far"], ["ends"]),
        node("Shape", ["ends"], ["bags"]),
        node("Squeeze", ["bags"], ["trips"]),
        node("Loop", ["trips", ""], ["stacked"], body=body),
        node("Mul", ["stacked", "two"], ["y"]),
    ]
    table = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)
    constants = {"zero": np.array([0]), "one": np.array([1]), "far": np.array([2**62]), "two": np.float32(2)}
    constants |= {"axes": np.array([0])} if axes_as_input else {}
    inputs = [_value("numbers", ["n"], INT64), _value("offsets", ["b"], INT64)]
    if weight_input:
        inputs.append(_value("table", [ROWS, COLUMNS]))
    else:
        constants["table"] = table
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "bags", inputs, [_value("y", None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString(), table


def _session(model):
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


def _operators(session):
    return [operator for row in session.program_report() for operator in row.operators]


def _check(model, all_feeds):
    session = _session(model)
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for feeds in all_feeds:
        (wanted,) = reference.run(None, feeds)
        for _ in range(4):
            (got,) = session.run(None, feeds)
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    return session


@pytest.mark.parametrize("op_type", ["ReduceMean", "ReduceSum", "ReduceMax"])
@pytest.mark.parametrize("opset", [13, 18])
def test_bags(op_type, opset):
    model, _ = _model(op_type, opset)
    generator = np.random.default_rng(1)
    numbers = generator.integers(-ROWS, ROWS, 30)
    offsets = [[0, 10, 29], [0, 1, 17], [3, 9, 28]]
    session = _check(model, [{"numbers": numbers, "offsets": np.array(places)} for places in offsets])
    assert "EmbeddingBag" in _operators(session)


def test_bags_without_rows_are_what_the_reduction_gives():
    model, _ = _model("ReduceSum", 13)
    feeds = {"numbers": np.arange(6), "offsets": np.array([0, 2, 2, 6])}
    _check(model, [feeds])


def test_offsets_counted_from_the_end_and_past_it():
    model, _ = _model("ReduceMean", 13)
    _check(model, [{"numbers": np.arange(8), "offsets": np.array(places)} for places in ([-8, -3, -1], [0, 5, 7])])


def test_a_table_that_is_fed():
    model, table = _model("ReduceMean", 13, weight_input=True)
    feeds = {"numbers": np.arange(9), "offsets": np.array([0, 4])}
    _check(model, [{**feeds, "table": table}, {**feeds, "table": table * 3}])


def test_columns_are_gathered_without_a_bag():
    model, _ = _model("ReduceMean", 13, gather_axis=1)
    session = _check(model, [{"numbers": np.arange(8), "offsets": np.array([0, 4])}])
    assert "EmbeddingBag" not in _operators(session)


@pytest.mark.parametrize("wrong", [ROWS, -ROWS - 1, 2**40])
def test_a_number_out_of_range_is_an_error(wrong):
    model, _ = _model("ReduceMean", 13)
    session = _session(model)
    good = {"numbers": np.arange(9), "offsets": np.array([0, 4])}
    wanted = session.run(None, good)[0]
    bad = {**good, "numbers": np.array([0, 1, 2, 3, wrong, 5, 6, 7, 8])}
    for _ in range(4):
        with pytest.raises(OrtSdkError):
            session.run(None, bad)
        np.testing.assert_allclose(session.run(None, good)[0], wanted, rtol=1e-6)


def test_rows_with_infinities_and_nan():
    model, table = _model("ReduceMax", 13, weight_input=True)
    odd = table.copy()
    odd[1, ::3], odd[2, ::5], odd[3, :4] = np.inf, -np.inf, np.nan
    session = _session(model)
    feeds = {"numbers": np.array([0, 1, 2, 2, 3, 4]), "offsets": np.array([0, 3, 4]), "table": odd}
    wanted = 2 * np.stack([np.max(odd[rows], axis=0) for rows in ([0, 1, 2], [2], [3, 4])])
    for _ in range(4):
        np.testing.assert_array_equal(session.run(None, feeds)[0], wanted)
