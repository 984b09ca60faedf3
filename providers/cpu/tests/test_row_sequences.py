"""Steps that make rows of rows, as one step where shapes vary, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.fusion.transformer import sequence
from ort_sdk_cpu.fusion.transformer.sequence import RowSequence
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort
from ort_sdk.run.program.shape_generic import RUNS_BEFORE_FUSING

MICROSOFT = "com.microsoft"
WIDTH, HEADS, INNER = 128, 4, 200
pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))


@pytest.fixture
def done(monkeypatch):
    """For each call of a sequence, whether it computed."""
    found = []
    compute = RowSequence.compute

    def noting(self, *inputs):
        result = compute(self, *inputs)
        found.append(result is not NotImplemented)
        return result

    monkeypatch.setattr(RowSequence, "compute", noting)
    return found


def random(*shape, seed=0, scale=1.0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32) * np.float32(scale)


class Writer:
    """Nodes and weights of a model."""

    def __init__(self):
        self.nodes, self.weights = [], {}

    def node(self, op_type, *inputs, outputs=1, domain="", **attributes):
        names = [f"{op_type}_{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, *shape, scale=None):
        name = f"w{len(self.weights)}"
        self.weights[name] = random(*shape, seed=len(self.weights), scale=shape[0] ** -0.5 if scale is None else scale)
        return name

    def linear(self, x, rows, columns):
        return self.node("MatMul", x, self.weight(rows, columns))

    def layer(self, x, mask="", *, biased=True):
        query, key, values = (self.linear(x, WIDTH, WIDTH) for _ in range(3))
        bias = self.weight(3 * WIDTH, scale=0.1) if biased else ""
        attended = self.node("MultiHeadAttention", query, key, values, bias, "", mask, domain=MICROSOFT, num_heads=HEADS)
        norm = [self.weight(WIDTH, scale=1.0), self.weight(WIDTH), self.weight(WIDTH)]
        first = self.node("SkipLayerNormalization", self.linear(attended, WIDTH, WIDTH), x, *norm, domain=MICROSOFT)
        wide = self.node("BiasGelu", self.linear(first, WIDTH, INNER), self.weight(INNER), domain=MICROSOFT)
        return self.node("SkipLayerNormalization", self.linear(wide, INNER, WIDTH), first, *norm, domain=MICROSOFT)

    def model(self, inputs, outputs):
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        shown = [
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"{name}_{axis}" for axis in range(rank)])
                for name, rank in own
            ]
            for own in (inputs, outputs)
        ]
        graph = helper.make_graph(self.nodes, "graph", *shown, weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def check(model, feeds, tolerance=2e-5):
    """All runs give what onnxruntime gives."""
    options, theirs = ort.SessionOptions(), onnxruntime.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 2
    theirs.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    other = onnxruntime.InferenceSession(model, theirs, providers=["CPUExecutionProvider"])
    for fed in feeds:
        for found, expected in zip(session.run(None, fed), other.run(None, fed), strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=tolerance * max(1.0, np.abs(expected).max(initial=0)))
    assert session.program_report() == ()


def texts(*shapes):
    """As many as come before fusing, then those given."""
    first = [(1, 40 + index) for index in range(RUNS_BEFORE_FUSING)]
    return [{"x": random(batch, length, WIDTH)} for batch, length in (*first, *shapes)]


SHAPES = [(1, 5), (1, 16), (1, 17), (2, 9), (3, 33), (1, 64), (1, 129), (2, 128), (1, 300), (1, 31)]


@pytest.mark.parametrize("biased", [True, False])
def test_layers_of_an_encoder(done, biased):
    writer = Writer()
    y = writer.layer(writer.layer("x", biased=biased), biased=biased)
    check(writer.model([("x", 3)], [(y, 3)]), texts(*SHAPES))
    assert done == [True] * len(SHAPES)


def test_few_rows(done):
    writer = Writer()
    check(writer.model([("x", 3)], [(writer.layer("x"), 3)]), texts((1, 1), (1, 4), (2, 2), (1, 8)))
    assert done == [True] * 4


def test_few_rows_of_which_threads_share_the_products(done, monkeypatch):
    """Each thread reads the others' sums: none of them goes on to the next product before all have."""
    monkeypatch.setattr(sequence, "WEIGHTS_PER_THREAD", 1)
    waits = []
    original = RowSequence._barriers_with

    def noting(self, by_rows, shared):
        found = original(self, by_rows, shared)
        steps = [step.product in shared for step in self._steps]
        waits.extend(after for is_shared, after in zip(steps, found[1:], strict=False) if is_shared)
        return found

    monkeypatch.setattr(RowSequence, "_barriers_with", noting)
    writer = Writer()
    y = writer.layer(writer.layer("x"))
    shapes = [(1, 1), (1, 2), (1, 3), (2, 1), (3, 1)]
    check(writer.model([("x", 3)], [(y, 3)]), texts(*shapes))
    assert done == [True] * len(shapes)
    assert waits
    assert all(waits)


def test_a_mask_of_any_shape(done):
    writer = Writer()
    model = writer.model([("x", 3), ("mask", 4)], [(writer.layer("x", "mask"), 3)])
    feeds = [fed | {"mask": random(1, 1, *[fed["x"].shape[1]] * 2)} for fed in texts()]
    shapes = [(1, 1, 20, 20), (2, HEADS, 21, 21), (2, 1, 22, 22), (1, HEADS, 23, 23), (1, 1, 24, 24)]
    feeds += [{"x": random(2, max(shape), WIDTH), "mask": random(*shape, seed=1)} for shape in shapes]
    feeds += [{"x": random(2, 25, WIDTH), "mask": random(2, 1, 25, 50)[..., ::2]}]
    check(model, feeds)
    assert done == [True] * 6


def test_what_else_is_read_is_an_output(done):
    writer = Writer()
    first = writer.layer("x")
    second = writer.layer(first)
    doubled = writer.node("Mul", first, writer.weight(1, scale=2.0))
    check(writer.model([("x", 3)], [(second, 3), (first, 3), (doubled, 3)]), texts(*SHAPES))
    assert done == [True] * len(SHAPES)


def test_a_step_between_ends_a_sequence(done):
    writer = Writer()
    first = writer.layer("x")
    reversed_ = writer.node("Softmax", writer.node("Transpose", first, perm=[0, 2, 1]))
    second = writer.layer(writer.node("Transpose", reversed_, perm=[0, 2, 1]))
    last = writer.node("SkipLayerNormalization", second, first, writer.weight(WIDTH), domain=MICROSOFT)
    check(writer.model([("x", 3)], [(last, 3)]), texts(*SHAPES))
    assert done == [True] * 2 * len(SHAPES)


def test_inputs_that_do_not_go_together_or_lie_apart(done):
    writer = Writer()
    total = writer.node("SkipLayerNormalization", "x", "z", writer.weight(WIDTH), domain=MICROSOFT)
    y = writer.linear(writer.node("FastGelu", writer.linear(total, WIDTH, INNER), domain=MICROSOFT), INNER, WIDTH)
    feeds = [fed | {"z": fed["x"][:, ::-1]} for fed in texts((1, 50))]
    feeds += [{"x": random(1, 60, 2 * WIDTH)[..., ::2], "z": random(1, 60, WIDTH)}]
    feeds += [{"x": random(1, 61, WIDTH), "z": random(1, 61, WIDTH)}]
    check(writer.model([("x", 3), ("z", 3)], [(y, 3)]), feeds)
    assert done[-1]


@pytest.mark.parametrize("op_type", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_sums_that_are_kept(done, op_type):
    writer = Writer()
    x = "x"
    for _ in range(3):
        inner = writer.node("FastGelu", writer.linear(x, WIDTH, INNER), writer.weight(INNER), domain=MICROSOFT)
        made = writer.linear(inner, INNER, WIDTH)
        norm = [writer.weight(WIDTH, scale=1.0)]
        names = writer.node(op_type, made, x, *norm, outputs=4, domain=MICROSOFT, epsilon=1e-5)
        writer.nodes[-1].output[1:3] = ["", ""]
        x = writer.node("SkipLayerNormalization", names[0], names[3], *norm, domain=MICROSOFT)
    check(writer.model([("x", 3)], [(x, 3)]), texts(*SHAPES))
    assert done == [True] * len(SHAPES)


def test_rows_of_matrices_and_activations_of_products(done):
    writer = Writer()
    hidden = writer.node("Gemm", "x", writer.weight(INNER, WIDTH), writer.weight(INNER), transB=1, alpha=0.5)
    activated = writer.node("Gelu", writer.node("LayerNormalization", hidden, writer.weight(INNER)), domain=MICROSOFT)
    back = writer.node("FusedGemm", activated, writer.weight(INNER, WIDTH), domain=MICROSOFT, activation="Tanh")
    shapes = [(40,), (41,), (42,), (43,), (9,), (64,), (100,), (600,), (65,)]
    check(writer.model([("x", 2)], [(back, 2)]), [{"x": random(*shape, WIDTH)} for shape in shapes])
    assert done == [True] * (len(shapes) - RUNS_BEFORE_FUSING)


def test_sequences_on_several_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor

    writer = Writer()
    model = writer.model([("x", 3)], [(writer.layer(writer.layer("x")), 3)])
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    plain = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = texts(*[(1, 60 + index) for index in range(12)])
    expected = [plain.run(None, fed)[0] for fed in feeds]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            found = list(pool.map(lambda fed: session.run(None, fed)[0], feeds))
            for own, wanted in zip(found, expected, strict=True):
                np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("factor", [None, 0.125, 3.0])
def test_products_with_a_vector_added_and_a_factor(done, is_first, factor):
    writer = Writer()
    x = writer.node("LayerNormalization", "x", writer.weight(WIDTH, scale=1.0))
    made = []
    for width in (WIDTH, INNER, WIDTH):
        pair = [writer.linear(x, WIDTH, width), writer.weight(width)]
        total = writer.node("Add", *(pair[::-1] if is_first else pair))
        if factor is not None:
            number = writer.weight(1)
            writer.weights[number] = np.float32(factor).reshape(())
            total = writer.node("Mul", *((number, total) if is_first else (total, number)))
        made.append((total, 3))
    check(writer.model([("x", 3)], made), texts((1, 1), (2, 1), (1, 50), (1, 2), (3, 5)))
    assert done == [True] * 5


def test_sums_that_are_read_before_they_are_multiplied(done):
    writer = Writer()
    product = writer.linear(writer.node("LayerNormalization", "x", writer.weight(WIDTH, scale=1.0)), WIDTH, INNER)
    total = writer.node("Add", product, writer.weight(INNER))
    scaled = writer.node("Mul", total, writer.weight(1))
    rows = writer.node("Add", total, writer.weight(1, INNER))
    check(writer.model([("x", 3)], [(scaled, 3), (rows, 3), (total, 3)]), texts((1, 1), (1, 30)))
    assert done == [True] * 2


def test_products_of_a_turned_operand_and_rows_that_are_added(done):
    """The first is no product of rows, also where it is square; the last adds what came before, times a number."""
    writer = Writer()
    turned = writer.node("Gemm", "x", writer.weight(WIDTH, WIDTH), transA=1)
    inner = writer.linear(writer.node("Relu", writer.linear(turned, WIDTH, INNER)), INNER, WIDTH)
    y = writer.node("Gemm", inner, writer.weight(WIDTH, WIDTH), turned, beta=0.5)
    rows = [*range(40, 40 + RUNS_BEFORE_FUSING), WIDTH, 1, 5, 30]
    check(writer.model([("x", 2)], [(y, 2)]), [{"x": random(WIDTH, count)} for count in rows])
    assert done == [True] * 4
