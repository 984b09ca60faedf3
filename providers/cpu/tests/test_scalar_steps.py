"""Masks and positions that runs of varying shapes work out of whole numbers: lines of one function, beside onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk
from ort_sdk.run.program import shape_generic

WORDS = 40


@pytest.fixture(autouse=True)
def _fuse_at_once(monkeypatch):
    monkeypatch.setattr(shape_generic, "RUNS_BEFORE_FUSING", 1)
    monkeypatch.setattr(shape_generic, "SECONDS_BEFORE_COMPILING", 0.0)


@pytest.fixture
def plans(monkeypatch):
    """Each plan of fused steps."""
    found = []
    fused = shape_generic._fused

    def noting(*arguments, **options):
        found.append(fused(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(shape_generic, "_fused", noting)
    return found


class Graph:
    """Nodes and constants of a model."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def node(self, op_type, *inputs, **attributes):
        self.nodes.append(helper.make_node(op_type, list(inputs), [f"{op_type}.{len(self.nodes)}"], **attributes))
        return self.nodes[-1].output[0]

    def constant(self, values, dtype=np.int64):
        self.constants.append(numpy_helper.from_array(np.array(values, dtype), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def dimension(self, x, axis):
        return self.node("Gather", self.node("Shape", x), self.constant(axis))

    def wide(self, x, *axes):
        for axis in axes:
            x = self.node("Unsqueeze", x, self.constant([axis]))
        return x

    def range(self, start, end):
        return self.node("Range", start, end, self.constant(1))

    def model(self, results):
        """Of results: name → element type."""
        given = [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "tokens"]),
            helper.make_tensor_value_info("kept", TensorProto.INT64, ["batch", "all"]),
            helper.make_tensor_value_info("past", TensorProto.FLOAT, ["batch", 2, "past", 4]),
        ]
        made = [helper.make_tensor_value_info(name, kind, None) for name, kind in results.items()]
        graph = helper.make_graph(self.nodes, "masks", given, made, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def exported(*, gathers_many):
    """A causal mask with what is padded, positions, and buckets of distances, as exporters write them."""
    graph = Graph()
    batch, tokens, past = graph.dimension("ids", 0), graph.dimension("ids", 1), graph.dimension("past", 2)
    total = graph.node("Add", past, tokens)
    positions = graph.node("Add", graph.range(graph.constant(0), tokens), past)
    rows, columns = graph.wide(positions, 0, 1, 3), graph.wide(graph.range(graph.constant(0), total), 0, 0, 0)
    sequence = graph.wide(graph.range(graph.constant(0), batch), 1, 2, 3)
    kept = graph.node("Cast", "kept", to=TensorProto.BOOL)
    if gathers_many:
        shape = graph.node("Shape", graph.node("Max", sequence, columns))
        places = [graph.wide(graph.node("Expand", x, shape), -1) for x in (sequence, columns)]
        is_kept = graph.node("GatherND", kept, graph.node("Concat", *places, axis=-1))
    else:
        flat = graph.node("Flatten", kept, axis=2)
        place = graph.node("Add", columns, graph.node("Mul", sequence, graph.dimension("kept", 1)))
        flat = graph.node("Reshape", flat, graph.constant([-1]))
        is_kept = graph.node("Reshape", graph.node("Gather", flat, place), graph.node("Shape", place))
    shown = graph.node("And", graph.node("LessOrEqual", columns, rows), is_kept)
    sizes = [graph.wide(batch, 0), graph.constant([-1]), graph.wide(tokens, 0), graph.wide(total, 0)]
    wanted = graph.node("Concat", *sizes, axis=0)
    open_ = graph.node("Equal", wanted, graph.constant([-1] * 4))
    target = graph.node("Where", open_, graph.constant([1] * 4), wanted)
    shown = graph.node("Expand", shown, target)
    mask = graph.node("Where", shown, graph.constant(0, np.float32), graph.constant(-1e9, np.float32))
    distance = graph.node("Sub", graph.node("Min", columns, rows), rows)
    logarithm = graph.node("Log", graph.node("Cast", graph.node("Sub", graph.constant(2), distance), to=TensorProto.FLOAT))
    bucket = graph.node("Cast", graph.node("Mul", logarithm, graph.constant(3, np.float32)), to=TensorProto.INT64)
    table = graph.constant(np.arange(40) / 8, np.float32)
    bias = graph.node("Add", graph.node("Gather", table, bucket), mask)
    counted = graph.node("CumSum", "kept", graph.constant(1))
    return graph.model({bias: TensorProto.FLOAT, positions: TensorProto.INT64, counted: TensorProto.INT64})


def session_of(library, model):
    return library.InferenceSession(model, providers=["CPUExecutionProvider"])


def feeds_of(batch, tokens, past, seed=0):
    rng = np.random.default_rng(seed)
    kept = rng.integers(0, 2, (batch, past + tokens))
    return {"ids": np.zeros((batch, tokens), np.int64), "kept": kept, "past": np.zeros((batch, 2, past, 4), np.float32)}


SHAPES = [
    (1, 1, 5),
    (1, 1, 6),
    (1, 1, 7),
    (2, 3, 4),
    (1, 1, 0),
    (1, 9, 0),
    (3, 1, 2),
    (2, 60, 90),
    (1, 150, 0),
    (0, 1, 2),
    (1, 0, 3),
]


@pytest.mark.parametrize("gathers_many", [False, True])
def test_masks_of_any_shape(plans, gathers_many):
    model = exported(gathers_many=gathers_many)
    ours, theirs = session_of(ort_sdk, model), session_of(onnxruntime, model)
    for seed, shape in enumerate(SHAPES):
        feeds = feeds_of(*shape, seed)
        for own, other in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            assert (own.dtype, own.shape) == (other.dtype, other.shape)
            np.testing.assert_allclose(own, other, rtol=1e-6)
    assert all(len(plan.steps) <= 4 < len(ours.placements()) for plan, _ in plans)


def test_what_lines_cannot_is_said_by_the_steps():
    model = exported(gathers_many=True)
    ours = session_of(ort_sdk, model)
    for length in range(3, 7):
        ours.run(None, feeds_of(1, 1, length))
    feeds = feeds_of(2, 1, 8) | {"kept": np.ones((1, 9), np.int64)}
    with pytest.raises(ort_sdk.api.InvalidArgument, match="GatherND"):
        ours.run(None, feeds)


def test_values_that_others_read_in_between():
    """Products between lines read what lines make, and lines what products make."""
    graph = Graph()
    weight = graph.constant(np.arange(WORDS * 4).reshape(WORDS, 4) % 7, np.float32)
    tokens = graph.dimension("ids", 1)
    places = graph.node("Add", graph.range(graph.constant(0), tokens), graph.constant([2]))
    rows = graph.node("MatMul", graph.node("Gather", weight, places), graph.constant(np.eye(4), np.float32))
    length = graph.dimension(rows, 0)
    further = graph.node("Mul", graph.range(graph.constant(0), graph.node("Add", length, tokens)), length)
    model = graph.model({rows: TensorProto.FLOAT, further: TensorProto.INT64})
    ours, theirs = session_of(ort_sdk, model), session_of(onnxruntime, model)
    for count in range(1, 9):
        feeds = feeds_of(1, count, 2)
        for own, other in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            np.testing.assert_array_equal(own, other)


def test_axes_that_are_fed_and_targets_of_no_dimensions(plans):
    """The steps that work out a number read them, too."""
    graph = Graph()
    size = graph.dimension("kept", 1)
    vector = graph.node("Unsqueeze", size, "axes")
    one = graph.node("Squeeze", vector, "axes")
    mask = graph.node("Less", graph.range(graph.constant(0), one), graph.node("Mul", size, graph.constant(2)))
    same = graph.node("Expand", graph.node("ReduceSum", "ids", keepdims=0), graph.constant([]))
    shown = graph.node("Add", graph.node("Expand", "number", graph.constant([])), graph.constant(1))
    kinds = {graph.node("Not", mask): TensorProto.BOOL, same: TensorProto.INT64, shown: TensorProto.INT64}
    further = {"axes": [1], "number": []}
    model = onnx.load_from_string(graph.model({**kinds, graph.node("Mul", vector, vector): TensorProto.INT64}))
    model.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in further.items())
    ours, theirs = (session_of(library, model.SerializeToString()) for library in (ort_sdk, onnxruntime))
    for shape in SHAPES[:5]:
        feeds = {**feeds_of(*shape), "axes": np.array([0]), "number": np.array(3)}
        for own, other in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            np.testing.assert_array_equal(own, other)
    assert plans


def test_numbers_that_follow_from_the_shapes_of_a_chain(plans):
    """A loop over many elements does not tell what is in its midst."""
    graph = Graph()
    same = graph.node("Cast", graph.node("Equal", "kept", "kept"), to=TensorProto.INT64)
    total = graph.node("Add", graph.dimension(same, 0), same)
    rest = graph.node("Sub", graph.dimension(total, 1), total)
    model = graph.model({total: TensorProto.INT64, rest: TensorProto.INT64})
    ours, theirs = session_of(ort_sdk, model), session_of(onnxruntime, model)
    for seed, shape in enumerate([*SHAPES, (3, 200, 50), (3, 200, 51)]):
        feeds = feeds_of(*shape, seed)
        for own, other in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            np.testing.assert_array_equal(own, other)
    assert plans
