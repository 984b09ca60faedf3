"""Decoders of single operators whose cache grows from run to run: their layers are one step, beside onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.fusion.transformer.sequence import RowSequence
from ort_sdk_cpu.platform import libraries

import ort_sdk

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

HEADS, SIZE, INNER, WORDS, LAYERS = 4, 16, 96, 50, 2
WIDTH, TURNING = HEADS * SIZE, 6
FRAMES = 7
CACHES = [f"past.{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
PRESENTS = [name.replace("past", "present") for name in CACHES]


@pytest.fixture(autouse=True)
def _fuse_at_once(monkeypatch):
    monkeypatch.setattr("ort_sdk.run.program.shape_generic.RUNS_BEFORE_FUSING", 1)
    monkeypatch.setattr("ort_sdk.run.program.shape_generic.SECONDS_BEFORE_COMPILING", 0.0)


@pytest.fixture
def done(monkeypatch):
    """For each call of a sequence of all layers, whether it computed."""
    found = []
    compute = RowSequence.compute

    def noting(self, *inputs):
        result = compute(self, *inputs)
        if sum(len(cache.outputs) for cache in self._caches) == len(CACHES):
            found.append(result is not NotImplemented)
        return result

    monkeypatch.setattr(RowSequence, "compute", noting)
    return found


def random(*shape, seed=0, scale=1.0):
    return (np.random.default_rng((seed, *shape)).standard_normal(shape) * scale).astype(np.float32)


class Decoder:
    """Writes a model as exporters do.

    Args:
        key_heads: of the cache.
        features: what it has, of: rotates, partly, normalizes, later, splits, cuts, slices, chosen, listed, parts, gemm, sums,
            crosses, masked, turns, open, hides, told, merged.
    """

    def __init__(self, key_heads, features):
        self.key_heads, self.features = key_heads, features
        self.nodes, self.weights = [], []
        self.shape = None

    def node(self, op_type, *inputs, outputs=None, **attributes):
        names = outputs or [f"{op_type}.{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, **attributes))
        return names[0] if len(names) == 1 else names

    def constant(self, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def dimension(self, x, axis):
        return self.node("Gather", self.node("Shape", x), self.constant(np.array([axis])))

    def reshape(self, x, *sizes):
        parts = [size if isinstance(size, str) else self.constant(np.array([size])) for size in sizes]
        return self.node("Reshape", x, self.node("Concat", *parts, axis=0))

    def lead(self, x):
        """Batch and tokens."""
        return [self.dimension(x, axis) for axis in (0, 1)] if "told" in self.features else [0, 0]

    def linear(self, x, rows, columns, like=""):
        """A product, with the batch and tokens of ``like``."""
        weight = self.constant(random(rows, columns, seed=len(self.weights), scale=rows**-0.5))
        bias = self.constant(random(columns, seed=len(self.weights), scale=0.1))
        if "gemm" not in self.features:
            return self.node("Add", self.node("MatMul", x, weight), bias)
        sizes = [self.dimension(like or x, axis) for axis in (0, 1)]
        return self.reshape(self.node("Gemm", self.reshape(x, -1, rows), weight, bias), *sizes, columns)

    def summed(self, inner, x):
        """The product that all that came before it is added to."""
        weight = self.constant(random(INNER, WIDTH, seed=len(self.weights), scale=INNER**-0.5))
        rows = [self.reshape(inner, -1, INNER), weight, self.reshape(x, -1, WIDTH)]
        return self.reshape(self.node("Gemm", *rows), *[self.dimension(x, axis) for axis in (0, 1)], WIDTH)

    def norm(self, x):
        scale, shift = (self.constant(random(WIDTH, seed=len(self.weights), scale=0.1) + start) for start in (1, 0))
        return self.node("LayerNormalization", x, scale, shift, axis=-1)

    def heads(self, x, count, *, normalizes=False):
        parted = self.reshape(x, *self.lead(x), count, SIZE)
        if normalizes and "later" not in self.features:
            parted = self.normalized(parted)
        apart = self.node("Transpose", parted, perm=[0, 2, 1, 3])
        return self.normalized(apart) if normalizes and "later" in self.features else apart

    def normalized(self, heads):
        scale = self.constant(random(SIZE, seed=len(self.weights), scale=0.1) + 1)
        return self.node("LayerNormalization", heads, scale, axis=-1)

    def cut_heads(self, x):
        """Heads, in each of which its queries, keys and values follow each other."""
        whole = self.reshape(self.linear(x, WIDTH, 3 * WIDTH), *self.lead(x), HEADS, 3 * SIZE)
        apart = self.node("Transpose", whole, perm=[0, 2, 1, 3])
        if "slices" not in self.features:
            names = [f"{part}.{len(self.nodes)}" for part in ("query", "key", "value")]
            return self.node("Split", apart, outputs=names, axis=-1, num_outputs=3)
        bounds = [self.constant(np.array([SIZE * place])) for place in range(4)]
        last = self.constant(np.array([-1]))
        return [self.node("Slice", apart, *bounds[place : place + 2], last) for place in range(3)]

    def chosen_heads(self, x):
        """Heads of queries, and behind them those of keys and values that all share."""
        whole = self.reshape(self.linear(x, WIDTH, WIDTH + 2 * SIZE), *self.lead(x), HEADS + 2, SIZE)
        bounds = [self.constant(np.array([number])) for number in (0, -2, 2, 1)]
        queries = self.node("Transpose", self.node("Slice", whole, *bounds), perm=[0, 2, 1, 3])
        return [queries, *(self.chosen_head(whole, place) for place in (-2, -1))]

    def chosen_head(self, whole, place):
        if "listed" not in self.features:
            taken = self.node("Gather", whole, self.constant(np.array([place])), axis=2)
            return self.node("Transpose", taken, perm=[0, 2, 1, 3])
        heads = self.node("Transpose", whole, perm=[2, 0, 1, 3])
        return self.node("Transpose", self.node("GatherND", heads, self.constant(np.array([[place]]))), perm=[1, 0, 2, 3])

    def parts_of_heads(self, x):
        """The same as ``cut_heads`` by an axis of their own."""
        whole = self.reshape(self.linear(x, WIDTH, 3 * WIDTH), *self.lead(x), HEADS, 3, SIZE)
        parts = [self.node("Gather", whole, self.constant(np.array(place)), axis=-2) for place in (0, 1, -1)]
        return [self.node("Transpose", heads, perm=[0, 2, 1, 3]) for heads in parts]

    def rotated(self, x):
        if "partly" not in self.features:
            return self.turned(x, SIZE)
        numbers = [self.constant(np.array([number])) for number in (0, TURNING, np.iinfo(np.int64).max, 3)]
        first, rest = (self.node("Slice", x, *numbers[place : place + 2], numbers[3]) for place in (0, 1))
        return self.node("Concat", self.turned(first, TURNING), rest, axis=-1)

    def turned(self, x, size):
        numbers = [self.constant(np.array([number])) for number in (0, size // 2, np.iinfo(np.int64).max, 3, 1)]
        first = self.node("Slice", x, numbers[0], numbers[1], numbers[3], numbers[4])
        second = self.node("Slice", x, numbers[1], numbers[2], numbers[3], numbers[4])
        turned = self.node("Concat", self.node("Neg", second), first, axis=-1)
        cos, sin = (self.node("Unsqueeze", name, self.constant(np.array([1]))) for name in ("cos", "sin"))
        return self.node("Add", self.node("Mul", x, cos), self.node("Mul", turned, sin))

    def repeated(self, x):
        """Heads of the cache for all that share one."""
        group = HEADS // self.key_heads
        if group == 1 or "chosen" in self.features:
            return x
        wide = self.node("Unsqueeze", x, self.constant(np.array([2])))
        sizes = [self.dimension(x, 0), self.key_heads, group, self.dimension(x, 2), SIZE]
        parts = [size if isinstance(size, str) else self.constant(np.array([size])) for size in sizes]
        return self.reshape(self.node("Expand", wide, self.node("Concat", *parts, axis=0)), 0, HEADS, -1, SIZE)

    def columns(self, keys):
        if "turns" not in self.features:
            return self.node("Transpose", keys, perm=[0, 1, 3, 2])
        if "open" in self.features:
            turned = self.node("Transpose", self.reshape(keys, 0, -1, SIZE), perm=[0, 2, 1])
            return self.reshape(turned, 0, self.key_heads, SIZE, -1)
        sizes = [self.dimension(keys, axis) for axis in range(4)]
        turned = self.node("Transpose", self.reshape(keys, -1, sizes[2], SIZE), perm=[0, 2, 1])
        return self.reshape(turned, sizes[0], sizes[1], SIZE, sizes[2])

    def attended(self, query, keys, values, mask):
        scores = self.node("MatMul", query, self.columns(keys))
        scores = self.node("Mul", scores, self.constant(np.float32(SIZE**-0.5)))
        weights = self.node("Softmax", self.node("Add", scores, mask) if mask else scores, axis=-1)
        if "hides" in self.features:
            weights = self.node("Where", self.node("IsNaN", weights), self.constant(np.float32(0)), weights)
        whole = self.node("Transpose", self.node("MatMul", weights, values), perm=[0, 2, 1, 3])
        if "merged" in self.features:
            return self.linear(self.reshape(whole, -1, WIDTH), WIDTH, WIDTH, self.reshape(whole, 0, 0, -1))
        return self.linear(self.reshape(whole, *self.lead(whole), WIDTH), WIDTH, WIDTH)

    def self_attended(self, x, layer):
        makers = {"cuts": self.cut_heads, "chosen": self.chosen_heads, "parts": self.parts_of_heads}
        make = next((maker for name, maker in makers.items() if name in self.features), None)
        query, key, value = self.apart_heads(x, layer) if make is None else make(x)
        if "rotates" in self.features:
            query, key = self.rotated(query), self.rotated(key)
        for name, new in zip(("key", "value"), (key, value), strict=True):
            self.node("Concat", f"past.{layer}.{name}", new, outputs=[f"present.{layer}.{name}"], axis=-2)
        keys, values = (self.repeated(f"present.{layer}.{name}") for name in ("key", "value"))
        return self.attended(query, keys, values, "mask")

    def apart_heads(self, x, layer):
        """Heads of queries, keys and values that have rows of their own."""
        widths = [HEADS * SIZE, self.key_heads * SIZE, self.key_heads * SIZE]
        if "splits" in self.features:
            names = [f"{part}.{layer}" for part in ("query", "key", "value")]
            self.node("Split", self.linear(x, WIDTH, sum(widths)), self.constant(np.array(widths)), outputs=names, axis=2)
        else:
            names = [self.linear(x, WIDTH, width) for width in widths]
        normalizes = ["normalizes" in self.features] * 2 + [False]
        parts = zip(names, widths, normalizes, strict=True)
        return [self.heads(name, width // SIZE, normalizes=own) for name, width, own in parts]

    def frames_mask(self):
        return "frames.mask" if "masked" in self.features else ""

    def model(self):
        x = self.node("Gather", self.constant(random(WORDS, WIDTH)), "input_ids")
        if "rotates" in self.features:
            angles = self.node("Concat", "angles", "angles", axis=-1)
            self.node("Cos", angles, outputs=["cos"])
            self.node("Sin", angles, outputs=["sin"])
        for layer in range(LAYERS):
            x = self.node("Add", x, self.self_attended(self.norm(x), layer))
            if "crosses" in self.features:
                query = self.heads(self.linear(self.norm(x), WIDTH, WIDTH), HEADS)
                x = self.node("Add", x, self.attended(query, "frames.key", "frames.value", self.frames_mask()))
            inner = self.node("Gelu" if "gemm" in self.features else "Relu", self.linear(self.norm(x), WIDTH, INNER))
            x = self.summed(inner, x) if "sums" in self.features else self.node("Add", x, self.linear(inner, INNER, WIDTH))
        self.node("MatMul", self.norm(x), self.constant(random(WIDTH, WORDS, scale=0.1)), outputs=["y"])
        return self._whole()

    def _whole(self):
        shapes = {"mask": ["batch", 1, "tokens", "all"], "angles": [1, "tokens", SIZE // 2]}
        if "partly" in self.features:
            shapes["angles"] = [1, "tokens", TURNING // 2]
        shapes |= {name: ["batch", HEADS, "frames", SIZE] for name in ("frames.key", "frames.value")}
        shapes["frames.mask"] = ["batch", 1, 1, "frames"]
        shapes |= {name: ["batch", self.key_heads, "past", SIZE] for name in CACHES}
        read = {name for node in self.nodes for name in node.input}
        given = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])]
        given += [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items() if name in read]
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", *PRESENTS)]
        graph = helper.make_graph(self.nodes, "decoder", given, made, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        return model.SerializeToString()


def session_of(library, model, threads=2):
    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    return library.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def feeds_of(session, past, length, *, batch=1, seed=0, key_heads=HEADS):
    hidden = np.triu(np.full((length, past + length), -1e9, np.float32), past + 1)
    hidden[:, 1 : past // 3] = -1e9
    feeds = {
        "input_ids": np.random.default_rng(seed).integers(0, WORDS, (batch, length)),
        "mask": np.broadcast_to(hidden, (batch, 1, length, past + length)).copy(),
        "angles": random(1, length, next((x.shape[2] for x in session.get_inputs() if x.name == "angles"), 1), seed=seed),
        "frames.mask": np.where(np.arange(FRAMES) % 3, 0, -1e9).astype(np.float32).reshape(1, 1, 1, -1).repeat(batch, 0),
        **{name: random(batch, HEADS, FRAMES, SIZE, seed=place) for place, name in enumerate(("frames.key", "frames.value"))},
        **{name: random(batch, key_heads, past, SIZE, seed=seed + place) for place, name in enumerate(CACHES)},
    }
    return {argument.name: feeds[argument.name] for argument in session.get_inputs()}


def check(ours, theirs, feeds):
    for own, other in zip(ours.run(None, feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=2e-5)


FEW = [(past, 1, 1) for past in range(3, 9)]
MANY = [(0, 30, 1), (0, 1, 1), (10, 2, 1), (11, 1, 3), (12, 20, 2), (13, 1, 1)]
KINDS = [
    (4, ()),
    (4, ("gemm", "splits", "told")),
    (4, ("crosses", "told")),
    (2, ("rotates",)),
    (1, ("rotates", "turns", "hides", "told")),
    (4, ("turns", "hides", "gemm", "splits")),
    (4, ("crosses", "masked")),
    (2, ("rotates", "normalizes")),
    (4, ("rotates", "partly", "told")),
    (4, ("rotates", "partly", "cuts", "told")),
    (4, ("rotates", "cuts", "slices")),
    (1, ("rotates", "normalizes", "later")),
    (1, ("rotates", "chosen", "told")),
    (1, ("rotates", "chosen", "listed", "turns", "open", "told")),
    (4, ("parts", "sums", "told")),
    (4, ("gemm", "splits", "merged")),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_layers_are_one_step(done, kind):
    key_heads, features = kind
    model = Decoder(key_heads, features).model()
    ours, theirs = session_of(ort_sdk, model), session_of(onnxruntime, model)
    for run, (past, length, batch) in enumerate(FEW + MANY):
        check(ours, theirs, feeds_of(ours, past, length, batch=batch, seed=run, key_heads=key_heads))
    assert all(done[: len(FEW) - 2])
    assert done[-1]
    assert False in done


def test_one_thread_and_in_turns_with_others(done):
    model = Decoder(2, ("rotates",)).model()
    ours, theirs = session_of(ort_sdk, model, threads=1), session_of(onnxruntime, model)
    state = feeds_of(ours, 0, 5, key_heads=2)
    for step in range(12):
        results = [session.run(None, state) for session in (ours, theirs)]
        for own, other in zip(*results, strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=2e-5)
        past = results[0][1].shape[2]
        state = feeds_of(ours, past, 1, seed=step, key_heads=2) | dict(zip(CACHES, results[0][1:], strict=True))
    assert sum(done) > 8


def test_weights_that_are_no_numbers_become_0(done):
    """Where all keys of a query are hidden by infinity, or a score is no number."""
    model = Decoder(4, ("turns", "hides")).model()
    ours, theirs = session_of(ort_sdk, model), session_of(onnxruntime, model)
    for run, (past, length, batch) in enumerate(FEW):
        feeds = feeds_of(ours, past, length, batch=batch, seed=run)
        if run > 2:
            feeds["mask"][:] = -np.inf
        if run > 3:
            feeds[CACHES[0]][0, 0, 1, :] = np.nan
        check(ours, theirs, feeds)
    assert done


def test_what_does_not_fit_is_left_to_the_steps():
    model = Decoder(4, ("gemm", "splits", "told")).model()
    ours = session_of(ort_sdk, model)
    for run, (past, length, batch) in enumerate(FEW):
        ours.run(None, feeds_of(ours, past, length, batch=batch, seed=run))
    feeds = feeds_of(ours, 5, 1)
    feeds[CACHES[1]] = random(1, HEADS, 4, SIZE)
    with pytest.raises(ort_sdk.api.OrtSdkError):
        ours.run(None, feeds)
    theirs = session_of(onnxruntime, model)
    check(ours, theirs, feeds_of(ours, 9, 1))


def test_a_result_that_others_read_too(done):
    """Rotated keys as an output, and the shape of a cache."""
    decoder = Decoder(2, ("rotates", "told"))
    model = decoder.model()
    rotated = next(node.output[0] for node in decoder.nodes if node.op_type == "Add" and "Mul" in node.input[0])
    whole = onnx.load_from_string(model)
    whole.graph.output.append(helper.make_tensor_value_info(rotated, TensorProto.FLOAT, None))
    ours, theirs = (session_of(library, whole.SerializeToString()) for library in (ort_sdk, onnxruntime))
    for run, (past, length, batch) in enumerate(FEW):
        check(ours, theirs, feeds_of(ours, past, length, batch=batch, seed=run, key_heads=2))


@pytest.mark.parametrize(
    ("kind", "op_type"), [((2, ("rotates",)), "Shape"), ((4, ("turns", "hides", "gemm", "splits")), "Concat")]
)
def test_numbers_of_shapes_that_are_results(kind, op_type):
    """What steps work out for layers that are one step is given to the caller, too."""
    key_heads, features = kind
    decoder = Decoder(key_heads, features)
    whole = onnx.load_from_string(decoder.model())
    names = [node.output[0] for node in decoder.nodes if node.op_type == op_type and node.output[0] not in PRESENTS]
    whole.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in names[::5])
    ours, theirs = (session_of(library, whole.SerializeToString()) for library in (ort_sdk, onnxruntime))
    for run, (past, length, batch) in enumerate(FEW):
        check(ours, theirs, feeds_of(ours, past, length, batch=batch, seed=run, key_heads=key_heads))


@pytest.mark.parametrize("features", [("gemm",), ("turns", "hides", "gemm", "splits")], ids="-".join)
def test_shapes_of_products_that_are_results(features):
    """A product's rows are taken apart again by a Reshape, whose shape says nothing of the product."""
    decoder = Decoder(4, features)
    whole = onnx.load_from_string(decoder.model())
    names = [node.output[0] for node in decoder.nodes if node.op_type == "Reshape"][::3]
    whole.graph.node.extend(helper.make_node("Shape", [name], [f"{name}.shape"]) for name in names)
    whole.graph.output.extend(helper.make_tensor_value_info(f"{name}.shape", TensorProto.INT64, None) for name in names)
    ours, theirs = (session_of(library, whole.SerializeToString()) for library in (ort_sdk, onnxruntime))
    for run, (past, length, batch) in enumerate(FEW):
        check(ours, theirs, feeds_of(ours, past, length, batch=batch, seed=run, key_heads=4))
