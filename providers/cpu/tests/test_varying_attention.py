"""Attention and views of single operators where shapes vary: one step each, with the results of the steps."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.attention.recognized_decode import RecognizedAttention
from ort_sdk_cpu.fusion.shapes import views
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

LOWEST = float(np.finfo(np.float32).min)
HEADS = 2


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def _fuse_at_once(monkeypatch):
    monkeypatch.setattr("ort_sdk.run.program.shape_generic.RUNS_BEFORE_FUSING", 1)
    monkeypatch.setattr("ort_sdk.run.program.shape_generic.SECONDS_BEFORE_COMPILING", 0.0)


@pytest.fixture
def calls(monkeypatch):
    """Attention computed as one step, and left to the steps; whether with a cache."""
    counted = {"one": 0, "steps": 0, "cached": 0}
    attend = RecognizedAttention.attend

    def watched(self, q, k, v, past_key=None, *others):
        result = attend(self, q, k, v, past_key, *others)
        counted["steps" if result is NotImplemented else "one"] += 1
        counted["cached"] += past_key is not None
        return result

    monkeypatch.setattr(RecognizedAttention, "attend", watched)
    return counted


class Graph:
    """Collects nodes; each method returns the result's name."""

    def __init__(self):
        self.nodes, self.weights = [], {}

    def node(self, op_type, *inputs, name="", domain="", **attributes):
        name = name or f"{op_type}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def constant(self, *numbers, dtype=np.int64, scalar=False):
        name = f"c{len(self.weights)}"
        self.weights[name] = np.array(numbers[0] if scalar else numbers, dtype)
        return name

    def number(self, number):
        return self.constant(number, dtype=np.float32, scalar=True)

    def size(self, x, axis):
        found = self.node("Gather", self.node("Shape", x), self.constant(axis, scalar=True), axis=0)
        return self.node("Unsqueeze", found, self.constant(0))

    def model(self, inputs, outputs):
        kinds = {"condition": TensorProto.BOOL}
        given = [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), dims) for name, dims in inputs.items()]
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "varying", given, made, weights)
        opset = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


FOUR = {name: ["b", HEADS, f"{name} rows", "size"] for name in ("q", "k", "v", "past_k", "past_v")}


def decoder(masked=lambda graph, scores: scores, *, cached=True, flat=False, given=()):
    """Attention over a cache, of heads or of matrices; ``masked`` adds what is between product and softmax."""
    graph = Graph()
    key, value = "k", "v"
    if cached:
        key, value = (graph.node("Concat", f"past_{x}", x, axis=2, name=f"present_{x}") for x in "kv")
    query, axes = "q", [0, 1, 3, 2]
    if flat:
        parts = []
        for x in (query, key, value):
            target = graph.node("Concat", graph.constant(-1), graph.size(x, 2), graph.size(x, 3), axis=0)
            parts.append(graph.node("Reshape", x, target))
        query, key, value, axes = *parts, [0, 2, 1]
    scores = graph.node("MatMul", query, graph.node("Transpose", key, perm=axes))
    weights = graph.node("Softmax", masked(graph, scores), axis=-1)
    graph.node("MatMul", weights, value, name="y")
    names = ["q", "k", "v", *(["past_k", "past_v"] if cached else [])]
    inputs = {name: FOUR[name] for name in names} | dict(given)
    return graph.model(inputs, ["y", *(["present_k", "present_v"] if cached else [])])


def feeds(past, length, batch=1, size=16, keys=None):
    rows = {"q": length, "k": length if keys is None else keys, "v": length if keys is None else keys}
    rows |= {} if past is None else {"past_k": past, "past_v": past}
    return {name: random(batch, HEADS, count, size, seed=index) for index, (name, count) in enumerate(rows.items())}


def made_of(model):
    return ort.InferenceSession(model, providers=["CPUExecutionProvider"])


def check(model, sequence):
    theirs, session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]), made_of(model)
    for fed in sequence:
        for found, expected in zip(session.run(None, fed), theirs.run(None, fed), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    return session


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("size", [16, 24])
def test_growing_cache(calls, flat, batch, size):
    check(decoder(flat=flat), [feeds(past, 1, batch, size) for past in (3, 4, 5, 64, 200)])
    assert calls == {"one": 4, "steps": 0, "cached": 4}


@pytest.mark.parametrize("flat", [False, True])
def test_several_tokens_and_no_past(calls, flat):
    check(decoder(flat=flat), [feeds(*lengths) for lengths in ((2, 1), (7, 3), (0, 20), (5, 40), (1, 1))])
    assert calls["one"] == 4


@pytest.mark.parametrize("flat", [False, True])
def test_keys_of_an_encoder(calls, flat):
    model = decoder(flat=flat, cached=False)
    check(model, [feeds(None, length, keys=keys) for length, keys in ((1, 30), (1, 31), (2, 50), (40, 7))])
    assert calls == {"one": 3, "steps": 0, "cached": 0}


@pytest.mark.parametrize("op_type", ["Mul", "Div"])
def test_scaled(calls, op_type):
    model = decoder(lambda graph, scores: graph.node(op_type, scores, graph.number(0.3)))
    check(model, [feeds(past, 1) for past in range(2, 6)])
    assert calls["one"] == 3


@pytest.mark.parametrize("filter_value", [LOWEST, -1e9, -1e4, -np.inf])
@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("seen", ["all", "some"])
def test_masks(calls, filter_value, is_added, seen):
    def masked(graph, scores):
        kept = graph.node("Where", "condition", graph.node("Div", scores, graph.number(2.0)), graph.number(filter_value))
        return graph.node("Add", kept, "mask") if is_added else kept

    shapes = {"condition": [1, 1, "rows", "total"], "mask": ["b", 1, 1, "total"]}
    model = decoder(masked, given={name: shapes[name] for name in ("condition", "mask")[: 1 + is_added]})
    sequence = []
    for past, length in ((3, 1), (4, 1), (9, 5), (6, 2)):
        total = past + length
        condition = np.tri(length, total, past, dtype=np.bool_)[None, None]
        mask = random(2, 1, 1, total, seed=9)
        own = {"condition": condition if seen == "some" else np.ones_like(condition), "mask": mask}
        sequence.append(feeds(past, length, 2) | {name: own[name] for name in ("condition", "mask")[: 1 + is_added]})
    check(model, sequence)
    # A number that scores near it may exceed is left to the steps, where it matters.
    assert calls["steps"] == (2 if seen == "some" and filter_value == -1e4 else 0)
    assert calls["one"] + calls["steps"] == 3


@pytest.mark.parametrize("filter_value", [LOWEST, -1e9])
def test_a_query_that_sees_nothing(calls, filter_value):
    def masked(graph, scores):
        return graph.node("Where", "condition", scores, graph.number(filter_value))

    model = decoder(masked, given={"condition": [1, 1, "rows", "total"]})
    hidden = [np.arange(past + 1) < past * (past % 2) for past in (3, 4, 5, 6)]
    check(model, [feeds(len(row) - 1, 1) | {"condition": row.reshape(1, 1, 1, -1)} for row in hidden])
    assert calls["steps"] == (2 if filter_value == -1e9 else 0)


def test_masks_that_make_more_of_the_scores_are_left_to_the_steps(calls):
    model = decoder(lambda graph, scores: graph.node("Add", scores, "mask"), given={"mask": ["n", 1, 1, "total"]}, cached=False)
    sequence = [feeds(None, 1, keys=keys) | {"mask": random(1 + keys % 2 * 2, 1, 1, keys)} for keys in (4, 6, 7, 9)]
    check(model, sequence)
    assert calls == {"one": 1, "steps": 2, "cached": 0}


def test_a_mask_made_of_the_caches_length(calls):
    def masked(graph, scores):
        rows = [graph.size(x, -2) for x in ("present_k", "q")]
        triangle = graph.constant(0, dtype=np.bool_)
        graph.weights[triangle] = np.tri(64, dtype=np.bool_)[None, None]
        lines = graph.node("Slice", triangle, graph.node("Sub", *rows), rows[0], graph.constant(2))
        seen = graph.node("Slice", lines, graph.constant(0), rows[0], graph.constant(3))
        return graph.node("Where", seen, scores, graph.number(LOWEST))

    session = check(decoder(masked), [feeds(past, length) for past, length in ((3, 1), (4, 1), (5, 6), (11, 2))])
    assert calls == {"one": 3, "steps": 0, "cached": 3}
    assert session.program_report() == ()


def test_a_cache_that_is_read_before_attention_is_done(calls):
    def masked(graph, scores):
        return graph.node("Add", scores, graph.node("ReduceMax", "present_k", axes=[1, 2, 3], keepdims=1))

    check(decoder(masked), [feeds(past, 1) for past in (3, 4, 5)])
    assert calls == {"one": 2, "steps": 0, "cached": 0}


def test_shapes_that_others_read_too(calls):
    graph = Graph()
    target = graph.node("Concat", graph.constant(0), graph.size("x", 2), graph.constant(-1), axis=0)
    graph.node("Reshape", "x", target, name="y")
    graph.node("Cast", target, to=TensorProto.FLOAT, name="z")
    check(graph.model({"x": ["a", "b", "c"]}, ["y", "z"]), [{"x": random(2, 6, count)} for count in (3, 4, 5, 6)])
    assert calls["one"] == 0


def reshaping(*target):
    graph = Graph()
    turned = graph.node("Transpose", "x", perm=[0, 2, 1])
    parts = [graph.size(*part) if isinstance(part, tuple) else graph.constant(part) for part in target]
    graph.node("Reshape", turned, graph.node("Concat", *parts, axis=0), name="y")
    return graph.model({"x": ["a", "b", "c"], "z": ["d", "e"]}, ["y"])


def test_views_with_what_works_out_their_shapes(monkeypatch):
    made = []
    fused = views.fused_views

    def noted(answer):
        made.extend(answer[0])
        return answer

    monkeypatch.setattr(views, "fused_views", lambda *given, **options: noted(fused(*given, **options)))
    model = reshaping(("x", 0), ("z", 1), -1)
    check(model, [{"x": random(2, 6, count), "z": random(1, width)} for count, width in ((2, 3), (3, 6), (4, 8), (5, 1))])
    assert [len(each.repeated) > 3 for each in made] == [True]


@pytest.mark.parametrize("leads", [("copied",), ("told",), ("told", "copied")], ids=str)
def test_shapes_of_a_reshape_that_leaves_a_number_open(leads):
    """Its lead is that of its input, or of another array; the shape is what a third gets, whose steps may run one by one."""
    graph = Graph()
    x, z = graph.node("Relu", "x"), graph.node("Transpose", graph.node("Exp", "z"), perm=[1, 0, 2])
    known = {"copied": lambda: graph.constant(0), "told": lambda: graph.size(z, 1)}
    for number, lead in enumerate(leads):
        target = graph.node("Concat", known[lead](), graph.constant(-1), graph.constant(4), axis=0)
        parted = graph.node("Reshape", graph.node("Transpose", x, perm=[0, 2, 1]), target)
        sizes = [graph.size(parted, axis) for axis in (0, 1)]
        whole = graph.node("Concat", *sizes, graph.constant(-1), axis=0)
        graph.node("Reshape", graph.node("Transpose", z, perm=[1, 0, 2]), whole, name=f"y{number}")
    outputs = [f"y{number}" for number in range(len(leads))]
    model = graph.model({"x": ["batch", 6, "count"], "z": ["count", "batch", 6]}, outputs)
    check(model, [{"x": random(2, 6, 2 * size), "z": random(2 * size, 2, 6)} for size in (2, 4, 6, 8)])


def test_empty_arrays_and_a_dimension_of_0_that_is_copied():
    model = reshaping(("x", 0), ("z", 0), -1)
    check(model, [{"x": random(2, 6, 4), "z": random(count, 3)} for count in (3, 4, 6, 0)])
    session = made_of(reshaping(("x", 0), ("z", 1), ("x", 2), ("z", 0)))
    for rows in (2, 3, 0, 4):
        assert session.run(None, {"x": random(rows, 6, 4), "z": random(2, 3)})[0].shape == (rows, 3, 4, 2)


def test_a_view_that_cannot_be_is_an_error_of_its_node():
    session = made_of(reshaping(("x", 0), ("z", 0), -1))
    for count in (2, 3, 6):
        session.run(None, {"x": random(2, 6, 4), "z": random(count, 3)})
    with pytest.raises(ort.api.InvalidArgument, match=r"cannot reshape \(2, 4, 6\)"):
        session.run(None, {"x": random(2, 6, 4), "z": random(5, 3)})


def test_arrays_that_do_not_belong_together_are_errors_of_the_steps(calls):
    session = made_of(decoder())
    for past in (2, 3):
        session.run(None, feeds(past, 1))
    with pytest.raises(ort.api.OrtSdkError, match=r"MatMul|Concat"):
        session.run(None, feeds(4, 1) | {"past_v": random(1, HEADS, 9, 16)})
    assert calls["steps"] == 1


def test_another_number_of_dimensions_than_before():
    graph = Graph()
    graph.node("Reshape", "x", graph.node("Concat", graph.constant(1), graph.node("Shape", "x"), axis=0), name="y")
    session = made_of(graph.model({"x": None}, ["y"]))
    for shape in ((2, 3), (3, 3), (4, 2, 1), (5,), (6, 1)):
        assert session.run(None, {"x": random(*shape)})[0].shape == (1, *shape)


def test_softmax_along_the_last_axis_only(calls):
    graph = Graph()
    scores = graph.node("MatMul", "q", graph.node("Transpose", "k", perm=[0, 1, 3, 2]))
    graph.node("MatMul", graph.node("Softmax", scores, axis=2), "v", name="y")
    check(graph.model({name: FOUR[name] for name in "qkv"}, ["y"]), [feeds(None, 3, keys=keys) for keys in (4, 5, 6)])
    assert calls["one"] == 0
