"""Decoders whose cache grows from run to run: their layers are one step, beside onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.fusion.transformer.sequence import RowSequence
from ort_sdk_cpu.platform import libraries

import ort_sdk
from ort_sdk.run.program.shape_generic import RUNS_BEFORE_FUSING

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

MICROSOFT = "com.microsoft"
WIDTH, HEADS, KEY_HEADS, SIZE, INNER, WORDS, ROWS, LAYERS = 128, 4, 2, 32, 200, 50, 400, 2
CACHES = [f"past.{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]


def random(*shape, seed=0, scale=1.0):
    return (np.random.default_rng((seed, *shape)).standard_normal(shape) * scale).astype(np.float32)


class Writer:
    """Nodes and weights of a model."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def node(self, op_type, *inputs, outputs=1, domain="", **attributes):
        names = [f"{op_type}_{len(self.nodes)}_{index}" for index in range(outputs)] if isinstance(outputs, int) else outputs
        self.nodes.append(helper.make_node(op_type, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, array):
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def linear(self, x, rows, columns):
        return self.node("MatMul", x, self.constant(random(rows, columns, seed=len(self.weights), scale=rows**-0.5)))

    def gated(self, x):
        gate, up = self.linear(x, WIDTH, INNER), self.linear(x, WIDTH, INNER)
        gate = self.node("Mul", gate, self.node("Sigmoid", gate))
        return self.linear(self.node("Mul", gate, up), INNER, WIDTH)


def attended(writer, x, layer, packed, attributes):
    lengths = ("lasts", "longest")
    angles = np.outer(np.arange(ROWS), 1 / 100 ** (np.arange(SIZE // 2) / SIZE))
    tables = [writer.constant(turn(angles).astype(np.float32)) for turn in (np.cos, np.sin)]
    if packed:
        parts = [writer.linear(x, WIDTH, (HEADS + 2 * KEY_HEADS) * SIZE), "", ""]
    else:
        parts = [writer.linear(x, WIDTH, heads * SIZE) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    caches = [name for name in CACHES if f".{layer}." in name]
    outputs = [f"attended.{layer}", *(name.replace("past", "present") for name in caches)]
    settings = {"num_heads": HEADS, "kv_num_heads": KEY_HEADS, "do_rotary": 1} | attributes
    writer.node("GroupQueryAttention", *parts, *caches, *lengths, *tables, outputs=outputs, domain=MICROSOFT, **settings)
    return writer.linear(outputs[0], HEADS * SIZE, WIDTH)


def model_of(writer, given):
    """The written nodes as a model that gives logits and caches; outputs that nobody reads are left out."""
    names = ["logits", *(name.replace("past", "present") for name in CACHES)]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    for node in writer.nodes:
        node.output[:] = [
            name if name in names or any(name in other.input for other in writer.nodes) else "" for name in node.output
        ]
    domains = [helper.make_opsetid("", 14), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph(writer.nodes, "decoder", given, made, writer.weights)
    return helper.make_model(graph, opset_imports=domains, ir_version=8).SerializeToString()


def decoder(packed=False, **attributes):
    """As onnxruntime-genai builds them."""
    writer = Writer()
    one = writer.constant(np.array([1]))
    count = writer.node("Sub", writer.node("ReduceSum", "attention_mask", one), one)
    writer.node("Cast", count, outputs=["lasts"], to=TensorProto.INT32)
    longest = writer.node("Gather", writer.node("Shape", "attention_mask"), writer.constant(np.array(1)))
    writer.node("Cast", longest, outputs=["longest"], to=TensorProto.INT32)
    x = writer.node("Gather", writer.constant(random(WORDS, WIDTH, seed=1)), "input_ids")
    scale = writer.constant(1 + random(WIDTH, seed=2, scale=0.1))
    y = writer.node("SimplifiedLayerNormalization", x, scale, axis=-1, epsilon=1e-5, stash_type=1)
    for layer in range(LAYERS):
        for part in (attended(writer, y, layer, packed, attributes), None):
            added = part or writer.gated(y)
            y, _, _, x = writer.node(
                "SkipSimplifiedLayerNormalization", x, added, scale, outputs=4, domain=MICROSOFT, epsilon=1e-5
            )
    weight = writer.constant(random(WIDTH, WORDS, seed=3))
    writer.node("MatMul", y, weight, outputs=["logits"])
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", name]) for name in ("input_ids", "attention_mask")]
    cache = ["batch", KEY_HEADS, "past", SIZE]
    given += [helper.make_tensor_value_info(name, TensorProto.FLOAT, cache) for name in CACHES]
    return model_of(writer, given)


def session_of(library, model, threads=2):
    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    return library.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def feeds_of(past, length, batch=1, rows=None, seed=0):
    rows = past if rows is None else rows
    ids = np.random.default_rng(seed).integers(0, WORDS, (batch, length))
    caches = {name: random(batch, KEY_HEADS, rows, SIZE, seed=seed + place) for place, name in enumerate(CACHES)}
    return {"input_ids": ids, "attention_mask": np.ones((batch, past + length), np.int64)} | caches


@pytest.fixture
def done(monkeypatch):
    """For each call of a sequence that has caches, whether it computed."""
    found = []
    compute = RowSequence.compute

    def noting(self, *inputs):
        result = compute(self, *inputs)
        if self._caches:
            found.append(result is not NotImplemented)
        return result

    monkeypatch.setattr(RowSequence, "compute", noting)
    return found


ATTRIBUTES = [{}, {"local_window_size": 5}, {"softcap": 2.0}, {"smooth_softmax": 1}, {"rotary_interleaved": 1}, {"do_rotary": 0}]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("attributes", ATTRIBUTES, ids=str)
def test_a_loop(done, attributes, packed, threads):
    model = decoder(packed, **attributes)
    ours, theirs = session_of(ort_sdk, model, threads), session_of(onnxruntime, model, threads)
    states = {session: feeds_of(0, 7) for session in (ours, theirs)}
    for step in range(RUNS_BEFORE_FUSING + 12):
        results = []
        for session, state in states.items():
            result, *caches = session.run(None, state)
            results.append((result, *caches))
            state.update(zip(CACHES, caches, strict=True))
            state["input_ids"] = np.full((1, 1 + step % 3), step)
            state["attention_mask"] = np.ones((1, caches[0].shape[2] + 1 + step % 3), np.int64)
        for own, other in zip(*results, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=2e-5)
    assert sum(done) > 10
    assert all(done)


HALF_UNIT = 2.0**-11


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("packed", [False, True])
def test_a_loop_with_a_cache_of_float16(done, packed, threads):
    """As near to a cache of float32 as keys and values that are rounded can be, through two layers."""
    model = onnx.load_from_string(decoder(packed))
    theirs = session_of(onnxruntime, model.SerializeToString(), threads)
    for value in (*model.graph.input, *model.graph.output):
        if value.name.replace("present", "past") in CACHES:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    ours = session_of(ort_sdk, model.SerializeToString(), threads)
    states = {session: feeds_of(0, 7) for session in (ours, theirs)}
    states[ours].update({name: states[ours][name].astype(np.float16) for name in CACHES})
    for step in range(RUNS_BEFORE_FUSING + 12):
        results = []
        for session, state in states.items():
            logits, *caches = session.run(None, state)
            results.append((logits, *caches))
            state.update(zip(CACHES, caches, strict=True))
            state["input_ids"] = np.full((1, 1 + step % 3), step)
            state["attention_mask"] = np.ones((1, caches[0].shape[2] + 1 + step % 3), np.int64)
        for own, other in zip(*results, strict=True):
            np.testing.assert_allclose(own.astype(np.float32), other, rtol=0, atol=8 * HALF_UNIT * np.abs(other).max())
    assert sum(done) > 10
    assert all(done)


FEW = [(3, 1), (4, 1), (5, 1), (6, 1), (7, 1)]


@pytest.mark.parametrize(
    ("batch", "many"), [(1, [(0, 40), (40, 2), (11, 30), (12, 1)]), (3, [(0, 40), (12, 1), (0, 20)])], ids=str
)
def test_many_queries_go_in_parts(done, batch, many):
    model = decoder()
    ours, theirs = session_of(ort_sdk, model), session_of(onnxruntime, model)
    for run, (past, length) in enumerate(FEW + many):
        feeds = feeds_of(past, length, batch, seed=run)
        for own, other in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=2e-5)
    assert False in done
    assert done[0]
    assert done[-1] == (many[-1][1] == 1)


def test_tokens_that_do_not_count(done):
    """A mask with zeros says that a sequence has fewer tokens."""
    model = decoder()
    ours, theirs = session_of(ort_sdk, model), session_of(onnxruntime, model)
    for run in range(8):
        feeds = feeds_of(10 + run, 1, 2, seed=run)
        feeds["attention_mask"][1, :3] = 0
        tokens = 8 + run
        for place, (own, other) in enumerate(zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True)):
            np.testing.assert_allclose(own[0], other[0], rtol=1e-4, atol=2e-5)
            second = [array[1] if place == 0 else array[1][:, :tokens] for array in (own, other)]
            np.testing.assert_allclose(*second, rtol=1e-4, atol=2e-5)
    assert done
    assert all(done)


def test_a_shared_buffer_is_filled(done):
    model, capacity = decoder(), 60
    ours, theirs = session_of(ort_sdk, model), session_of(onnxruntime, model)
    feeds = feeds_of(0, 1, rows=capacity)
    values = {name: ort_sdk.OrtValue.ortvalue_from_numpy(feeds[name].copy()) for name in CACHES}
    for past in range(20):
        feeds |= {"input_ids": np.array([[past]]), "attention_mask": np.ones((1, past + 1), np.int64)}
        expected, *caches = theirs.run(None, feeds)
        feeds |= dict(zip(CACHES, caches, strict=True))
        binding = ours.io_binding()
        for name in ("input_ids", "attention_mask"):
            binding.bind_cpu_input(name, feeds[name])
        binding.bind_output("logits")
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(name.replace("past", "present"), value)
        ours.run_with_iobinding(binding)
        np.testing.assert_allclose(binding.get_outputs()[0].numpy(), expected, rtol=1e-4, atol=2e-5)
        for name, value in values.items():
            tokens = slice(past + 1)
            np.testing.assert_allclose(value.numpy()[:, :, tokens], feeds[name][:, :, tokens], rtol=1e-4, atol=2e-5)
    assert done
    assert all(done)


def test_caches_that_do_not_fit_are_left_to_their_node(done):
    model = decoder()
    session = session_of(ort_sdk, model)
    for run in range(RUNS_BEFORE_FUSING + 2):
        session.run(None, feeds_of(5 + run, 1))
    assert all(done)
    feeds = feeds_of(30, 1)
    # Fewer rows than tokens, which only some nodes have.
    feeds[CACHES[2]], feeds[CACHES[3]] = (feeds[name][:, :, :20] for name in CACHES[2:])
    expected = session_of(ort_sdk, model).run(None, feeds)
    for own, other in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=2e-5)
    assert not done[-1]


def multi_head_decoder(*, rotates, masked, biased, **attributes):
    """As ONNX Runtime's optimizer leaves them."""
    writer = Writer()
    x = writer.node("Gather", writer.constant(random(WORDS, WIDTH, seed=1)), "input_ids")
    scale = writer.constant(1 + random(WIDTH, seed=2, scale=0.1))
    angles = np.outer(np.arange(ROWS), 1 / 100 ** (np.arange(SIZE // 2) / SIZE))
    tables = [writer.constant(turn(angles).astype(np.float32)) for turn in (np.cos, np.sin)]
    y = writer.node("SimplifiedLayerNormalization", x, scale, axis=-1, epsilon=1e-5, stash_type=1)
    for layer in range(LAYERS):
        parts = [writer.linear(y, WIDTH, WIDTH) for _ in range(3)]
        if rotates:
            parts[:2] = [writer.node("RotaryEmbedding", part, "position_ids", *tables, domain=MICROSOFT) for part in parts[:2]]
        bias = writer.constant(random(3 * WIDTH, seed=layer)) if biased else ""
        caches = [name for name in CACHES if f".{layer}." in name]
        inputs = [*parts, bias, "attention_mask" if masked else "", "", *caches]
        outputs = [f"attended.{layer}", *(name.replace("past", "present") for name in caches)]
        writer.node("MultiHeadAttention", *inputs, outputs=outputs, domain=MICROSOFT, num_heads=HEADS, **attributes)
        for added in (writer.linear(outputs[0], WIDTH, WIDTH), None):
            y, _, _, x = writer.node(
                "SkipSimplifiedLayerNormalization", x, added or writer.gated(y), scale, outputs=4, domain=MICROSOFT, epsilon=1e-5
            )
    writer.node("MatMul", y, writer.constant(random(WIDTH, WORDS, seed=3)), outputs=["logits"])
    given = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])]
    if rotates:
        given.append(helper.make_tensor_value_info("position_ids", TensorProto.INT64, ["batch", "tokens"]))
    if masked:
        given.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT32, ["batch", "all"]))
    given += [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", HEADS, "past", SIZE]) for name in CACHES]
    return model_of(writer, given)


@pytest.mark.parametrize("kind", [(), ("rotates",), ("masked",), ("biased",), ("rotates", "masked", "biased")], ids=str)
@pytest.mark.parametrize("attributes", [{}, {"unidirectional": 1}, {"scale": 0.3}], ids=str)
def test_a_loop_of_multi_head_attention(done, attributes, kind):
    model = multi_head_decoder(**{name: name in kind for name in ("rotates", "masked", "biased")}, **attributes)
    ours, theirs = session_of(ort_sdk, model), session_of(onnxruntime, model)
    states = {session: {name: random(1, HEADS, 0, SIZE) for name in CACHES} for session in (ours, theirs)}
    tokens = 0
    for step in range(RUNS_BEFORE_FUSING + 9):
        length, results = 5 if step == 0 else 1 + step // 10, []
        mask = (np.arange(tokens + length) != 2).astype(np.int32)[None] if step % 2 else np.ones((1, tokens + length), np.int32)
        feeds = {"input_ids": np.full((1, length), step)}
        feeds |= {"position_ids": tokens + np.arange(length)[None]} if "rotates" in kind else {}
        feeds |= {"attention_mask": mask} if "masked" in kind else {}
        for session, state in states.items():
            result, *caches = session.run(None, state | feeds)
            results.append((result, *caches))
            state.update(zip(CACHES, caches, strict=True))
        tokens += length
        for own, other in zip(*results, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=2e-5)
    assert done.count(True) >= 6


def test_caches_that_later_steps_read(done):
    """As those that become one array, or are cut, behind the attention."""
    model = onnx.load_from_string(multi_head_decoder(rotates=False, masked=False, biased=True))
    presents = [name.replace("past", "present") for name in CACHES]
    for place, name in enumerate(presents):
        node = helper.make_node("Neg", [name], [f"negative.{place}"])
        at = next(index for index, each in enumerate(model.graph.node) if name in each.output)
        model.graph.node.insert(at + 1, node)
        model.graph.output.append(helper.make_tensor_value_info(f"negative.{place}", TensorProto.FLOAT, None))
    ours, theirs = (session_of(library, model.SerializeToString()) for library in (ort_sdk, onnxruntime))
    for past in range(RUNS_BEFORE_FUSING + 4):
        feeds = {name: random(1, HEADS, past, SIZE, seed=past) for name in CACHES} | {"input_ids": np.array([[past]])}
        for own, other in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=2e-5)
    assert done
    assert all(done)


def test_positions_without_a_row_are_left_to_their_node(done):
    session = session_of(ort_sdk, multi_head_decoder(rotates=True, masked=False, biased=False))
    for past in range(RUNS_BEFORE_FUSING + 4):
        feeds = {name: random(1, HEADS, past, SIZE, seed=past) for name in CACHES}
        session.run(None, feeds | {"input_ids": np.array([[1]]), "position_ids": np.array([[past]])})
    assert done[-1]
    feeds = {name: random(1, HEADS, 50, SIZE) for name in CACHES}
    with pytest.raises(ort_sdk.api.OrtSdkError):
        session.run(None, feeds | {"input_ids": np.array([[1]]), "position_ids": np.array([[ROWS]])})
    assert not done[-1]
