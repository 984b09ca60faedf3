"""Attention of a single head over a cache that grows, as in bodies of loops: a turn is one step, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.fusion.transformer.sequence import RowSequence
from ort_sdk_cpu.platform import libraries

import ort_sdk

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

SIZE, WORDS = 32, 40
FEW = [(past, 1, 1) for past in range(3, 9)]
MANY = [(0, 30, 1), (0, 1, 1), (10, 2, 1), (11, 1, 3), (12, 20, 2), (13, 1, 1)]


@pytest.fixture(autouse=True)
def _fuse_at_once(monkeypatch):
    monkeypatch.setattr("ort_sdk.run.program.shape_generic.RUNS_BEFORE_FUSING", 1)
    monkeypatch.setattr("ort_sdk.run.program.shape_generic.SECONDS_BEFORE_COMPILING", 0.0)


@pytest.fixture
def done(monkeypatch):
    """For each call of a sequence that begins with a Gather, whether it computed."""
    found = []
    compute = RowSequence.compute

    def noting(self, *inputs):
        result = compute(self, *inputs)
        if self._shape_inputs:
            found.append(result is not NotImplemented)
        return result

    monkeypatch.setattr(RowSequence, "compute", noting)
    return found


class Turn:
    """Writes one turn of a search: words to the likeliest next words.

    Args:
        features: what it has, of: masked, keeps, halves, wide.
    """

    def __init__(self, *features):
        self.features, self.nodes, self.weights = features, [], []
        self.random = np.random.default_rng(len(features))

    def node(self, op_type, *inputs, outputs=None, **attributes):
        names = outputs or [f"{op_type}.{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names[0]

    def constant(self, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def linear(self, x, columns=SIZE):
        weight = (self.random.standard_normal((SIZE, columns)) * SIZE**-0.5).astype(np.float32)
        shift = self.random.standard_normal(columns).astype(np.float32)
        return self.node("Add", self.node("MatMul", x, self.constant(weight)), self.constant(shift))

    def operands(self, x):
        """Queries, keys and values."""
        if "halves" not in self.features:
            return [self.linear(x) for _ in range(3)]
        names = ["split.query", "split.key", "split.value"]
        self.node("Split", self.linear(x, 3 * SIZE), outputs=names, axis=-1, num_outputs=3)
        return names

    def write(self):
        """The nodes."""
        table = self.random.standard_normal((WORDS, SIZE)).astype(np.float32)
        x = self.node("Gather", self.constant(table), "words")
        query, key, value = self.operands(x)
        for kind, new in (("key", key), ("value", value)):
            self.node("Concat", f"past.{kind}", new, outputs=[f"present.{kind}"], axis=1)
        scores = self.node("MatMul", query, self.node("Transpose", "present.key", perm=[0, 2, 1]))
        scores = self.node("Mul", scores, self.constant(np.float32(SIZE**-0.5)))
        if "masked" in self.features:
            scores = self.node("Add", scores, "mask")
        attended = self.node("MatMul", self.node("Softmax", scores, axis=-1), "present.value")
        y = self.linear(self.node("Relu", self.linear(self.node("Add", x, attended))), 1500 if "wide" in self.features else WORDS)
        self.node("ArgMax", y, outputs=["next"], axis=-1, keepdims=int("keeps" in self.features))
        return self

    def model(self):
        shapes = {"past.key": ["batch", "past", SIZE], "past.value": ["batch", "past", SIZE]}
        if "masked" in self.features:
            shapes["mask"] = ["batch", "tokens", "all"]
        given = [helper.make_tensor_value_info("words", TensorProto.INT64, ["batch", "tokens"])]
        given += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
        made = [helper.make_tensor_value_info("next", TensorProto.INT64, None)]
        made += [helper.make_tensor_value_info(f"present.{kind}", TensorProto.FLOAT, None) for kind in ("key", "value")]
        return written(helper.make_graph(self.nodes, "turn", given, made, self.weights))

    def loop(self):
        """The turns of a search as a Loop, which carries the text and its cache."""
        self.node("Identity", "goes", outputs=["goes.on"])
        self.node("Concat", "text", "next", outputs=["longer"], axis=1)
        shapes = {"turn": [], "goes": [], "text": ["b", "t"], "words": ["b", 1], "past.key": None, "past.value": None}
        kinds = {"turn": TensorProto.INT64, "goes": TensorProto.BOOL, "text": TensorProto.INT64, "words": TensorProto.INT64}
        given = [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape) for name, shape in shapes.items()]
        names = {"goes.on": "goes", "longer": "text", "next": "words", "present.key": "past.key", "present.value": "past.value"}
        made = [helper.make_tensor_value_info(name, kinds.get(own, TensorProto.FLOAT), None) for name, own in names.items()]
        body = helper.make_graph(self.nodes, "body", given, made, self.weights)
        start = numpy_helper.from_array(np.zeros((1, 0, SIZE), np.float32), "start")
        loop = helper.make_node("Loop", ["turns", "", "first", "first", "start", "start"], ["text", "last", "k", "v"], body=body)
        given = [helper.make_tensor_value_info("turns", TensorProto.INT64, [])]
        given.append(helper.make_tensor_value_info("first", TensorProto.INT64, [1, 1]))
        made = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in ("text", "last")]
        made += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("k", "v")]
        return written(helper.make_graph([loop], "search", given, made, [start]))


def written(graph):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()


def sessions(model):
    return [library.InferenceSession(model, providers=["CPUExecutionProvider"]) for library in (ort_sdk, onnxruntime)]


def feeds_of(session, past, length, batch, seed):
    random = np.random.default_rng(seed)
    feeds = {
        "words": random.integers(-WORDS, WORDS, (batch, length)),
        "past.key": random.standard_normal((batch, past, SIZE)).astype(np.float32),
        "past.value": random.standard_normal((batch, past, SIZE)).astype(np.float32),
        "mask": np.where(random.random((batch, length, past + length)) < 0.2, -1e9, 0).astype(np.float32),
    }
    return {argument.name: feeds[argument.name] for argument in session.get_inputs()}


def check(ours, theirs, feeds):
    for own, other in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
        assert own.dtype == other.dtype
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("features", [(), ("masked", "keeps"), ("halves", "keeps"), ("wide",)], ids=str)
def test_a_turn_is_one_step(done, features):
    ours, theirs = sessions(Turn(*features).write().model())
    for run, (past, length, batch) in enumerate(FEW + MANY):
        check(ours, theirs, feeds_of(ours, past, length, batch, run))
    assert all(done[: len(FEW) - 2])
    assert done[-1]
    assert False in done


def test_a_loop_of_turns(done):
    model = Turn().write().loop()
    ours, theirs = sessions(model)
    for run, turns in enumerate((5, 9, 7, 0, 12, 12, 12)):
        check(ours, theirs, {"turns": np.array(turns), "first": np.array([[run]])})
    assert sum(done) > 8


def test_words_that_are_not_in_the_table(done):
    ours, theirs = sessions(Turn().write().model())
    for run, (past, length, batch) in enumerate(FEW):
        feeds = feeds_of(ours, past, length, batch, run)
        check(ours, theirs, feeds)
    assert done[-1]
    for past, wrong in enumerate((WORDS, -WORDS - 1)):
        feeds = feeds_of(ours, past, 1, 1, 0)
        with pytest.raises(ort_sdk.api.OrtSdkError):
            ours.run(None, feeds | {"words": np.array([[wrong]])})
        check(ours, theirs, feeds)
    assert done[-2:] == [False, False]
