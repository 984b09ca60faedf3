"""Products with weights of packed integers in sequences of tasks on rows: beside float64, in decoders beside onnxruntime."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.fusion.transformer import sequence
from ort_sdk_cpu.fusion.transformer.sequence import RowSequence
from ort_sdk_cpu.gemm.nbits import launch
from ort_sdk_cpu.gemm.nbits.select import GEMV_ROWS
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set, machine_instruction_set

import ort_sdk
from ort_sdk.api import ExtentError

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

MICROSOFT = "com.microsoft"
EXACT, INT8 = 0, 4
TOLERANCE = 1e-6
"""Largest error over the largest sum of magnitudes."""
BLOCK = 32
WIDTH, HEADS, KEY_HEADS, SIZE, INNER, WORDS, POSITIONS, LAYERS = 96, 6, 2, 16, 200, 40, 400, 2
CACHES = [f"past.{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
PRESENTS = [name.replace("past", "present") for name in CACHES]
THREADS = (1, 2)


@pytest.fixture(autouse=True)
def _fuse_at_once(monkeypatch):
    monkeypatch.setattr("ort_sdk.run.program.shape_generic.RUNS_BEFORE_FUSING", 1)
    monkeypatch.setattr("ort_sdk.run.program.shape_generic.SECONDS_BEFORE_COMPILING", 0.0)
    monkeypatch.setattr(sequence, "WEIGHTS_PER_THREAD", 1)


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


def pack(codes, bits):
    """(..., n) codes in bytes along the last axis, lowest bits first."""
    per_byte = 8 // bits
    padded = np.zeros((*codes.shape[:-1], -(-codes.shape[-1] // per_byte) * per_byte), np.uint8)
    padded[..., : codes.shape[-1]] = codes
    parts = padded.reshape(*codes.shape[:-1], -1, per_byte) << np.arange(0, 8, bits, dtype=np.uint8)
    return parts.sum(-1).astype(np.uint8)


def quantized(x, group):
    """Rows as int8 times a scale for each group, in float32's roundings, given in float64."""
    *lead, size = x.shape
    groups = np.zeros((*lead, -(-size // group) * group), np.float32)
    groups[..., :size] = x
    groups = groups.reshape(*lead, -1, group)
    scales = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)
    return (np.rint(groups * inverse) * scales.astype(np.float64)).reshape(*lead, -1)[..., :size]


class Weight:
    """A weight [N, K] of random codes, as operands of MatMulNBits and in float64."""

    def __init__(self, size_k, size_n, *, bits=4, zeros="none", seed=0):
        rng, blocks, most = np.random.default_rng([seed, size_k, size_n, bits]), -(-size_k // BLOCK), 1 << bits
        codes = np.zeros((size_n, blocks * BLOCK), np.uint8)
        codes[:, :size_k] = rng.integers(0, most, (size_n, size_k))
        scales = rng.uniform(0.5, 1.5, (size_n, blocks)).astype(np.float32) * np.float32(4 / most * size_k**-0.5)
        points = np.full((size_n, blocks), most // 2)
        if zeros != "none":
            spread = rng.uniform(-0.5, 0.5, (size_n, blocks))
            points = (points + spread).astype(np.float32) if zeros == "float" else points + (spread > 0)
        self.operands = [pack(codes.reshape(size_n, blocks, BLOCK), bits), scales]
        if zeros != "none":
            self.operands.append(points if zeros == "float" else pack(points.astype(np.uint8), bits))
        spread_points, spread_scales = (np.repeat(each.astype(np.float64), BLOCK, 1) for each in (points, scales))
        self.exact = ((codes - spread_points) * spread_scales)[:, :size_k]
        self.attributes = {"K": size_k, "N": size_n, "bits": bits, "block_size": BLOCK}


class Writer:
    """Nodes and weights of a model."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def node(self, op_type, *inputs, outputs=None, domain="", **attributes):
        names = outputs or [f"{op_type}.{len(self.nodes)}"]
        self.nodes.append(helper.make_node(op_type, list(inputs), names, domain=domain, **attributes))
        return names[0]

    def constant(self, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def product(self, x, weight, accuracy_level, bias=None, outputs=None):
        operands = [self.constant(array) for array in weight.operands]
        if bias is not None:
            operands += [*[""] * (4 - len(operands)), self.constant(bias)]
        attributes = weight.attributes | {"accuracy_level": accuracy_level}
        return self.node("MatMulNBits", x, *operands, outputs=outputs, domain=MICROSOFT, **attributes)

    def model(self, given, made):
        of_outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made]
        graph = helper.make_graph(self.nodes, "model", given, of_outputs, self.weights)
        domains = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=10).SerializeToString()


def session_of(library, model, threads=2):
    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    return library.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Products:
    """The sum of two products of the same rows, the second with a bias."""

    def __init__(self, size_k, size_n, bits, zeros, accuracy_level):
        self.weights = [Weight(size_k, size_n, bits=bits, zeros=zeros, seed=seed) for seed in (1, 2)]
        self.bias = np.random.default_rng(3).standard_normal(size_n).astype(np.float32)
        self.group = 32 // bits if accuracy_level == INT8 else 0
        writer = Writer()
        parts = [
            writer.product("x", self.weights[0], accuracy_level),
            writer.product("x", self.weights[1], accuracy_level, self.bias),
        ]
        writer.node("Add", *parts, outputs=["y"])
        self.model = writer.model([helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "tokens", size_k])], ["y"])

    def check(self, session, batch, tokens):
        size_k = self.weights[0].attributes["K"]
        x = np.random.default_rng([batch, tokens]).standard_normal((batch, tokens, size_k)).astype(np.float32)
        taken = quantized(x, self.group) if self.group else x.astype(np.float64)
        expected = sum(taken @ weight.exact.T for weight in self.weights) + self.bias
        scale = sum(np.abs(taken) @ np.abs(weight.exact).T for weight in self.weights).max()
        (found,) = session.run(None, {"x": x})
        np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("accuracy_level", [EXACT, INT8])
@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_products_of_few_rows(done, bits, zeros, accuracy_level, threads):
    for size_k, size_n in ((32, 1), (72, 19), (1000, 45)):
        products = Products(size_k, size_n, bits, zeros, accuracy_level)
        session, most = session_of(ort_sdk, products.model, threads), GEMV_ROWS[accuracy_level == EXACT, False]
        done.clear()
        for batch, tokens in [(1, 2), *((1, tokens) for tokens in range(1, most + 1)), (2, most // 2), (most, 1)]:
            products.check(session, batch, tokens)
        assert len(done) >= most
        assert all(done)


@pytest.mark.parametrize("accuracy_level", [EXACT, INT8])
def test_products_of_more_rows_are_left_to_their_kernels(done, accuracy_level):
    """There activations are rounded by blocks where they are rounded, as without sequences."""
    products, most = Products(100, 30, 4, "packed", accuracy_level), GEMV_ROWS[accuracy_level == EXACT, False]
    session = session_of(ort_sdk, products.model)
    for tokens in (1, 2, 3):
        products.check(session, 1, tokens)
    assert all(done)
    products.group = BLOCK if accuracy_level == INT8 else 0
    for tokens in (most + 1, most + 7, most + 2):
        products.check(session, 1, tokens)
        assert not done[-1]


def test_weights_that_are_fed_are_left_to_their_kernel(done):
    weight, writer = Weight(64, 20), Writer()
    names = ["codes", "scales"]
    parts = [
        writer.node("MatMulNBits", "x", *names, domain=MICROSOFT, accuracy_level=EXACT, **weight.attributes) for _ in range(2)
    ]
    writer.node("Add", *parts, outputs=["y"])
    types = (TensorProto.UINT8, TensorProto.FLOAT)
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "tokens", 64])]
    given += [
        helper.make_tensor_value_info(name, kind, array.shape)
        for name, kind, array in zip(names, types, weight.operands, strict=True)
    ]
    session = session_of(ort_sdk, writer.model(given, ["y"]))
    for tokens in (1, 2, 3, 4):
        x = np.random.default_rng(tokens).standard_normal((1, tokens, 64)).astype(np.float32)
        (found,) = session.run(None, {"x": x} | dict(zip(names, weight.operands, strict=True)))
        np.testing.assert_allclose(found, 2 * x.astype(np.float64) @ weight.exact.T, rtol=0, atol=1e-5)
    assert not done


def test_tasks_are_held_against_working_memory(monkeypatch):
    """Rows that would be arranged farther apart than there is memory are refused."""
    plan_of = launch.plan_gemv

    def far(*arguments, **options):
        plan, most = plan_of(*arguments, **options)
        return replace(plan, x_stride=plan.x_stride << 20), most

    monkeypatch.setattr(launch, "plan_gemv", far)
    session = session_of(ort_sdk, Products(64, 20, 4, "none", INT8).model)
    x = np.ones((1, 2, 64), np.float32)
    session.run(None, {"x": x})
    with pytest.raises(ExtentError):
        session.run(None, {"x": x[:, :2].repeat(2, 1)})


def decoder(bits, zeros, accuracy_level):
    """As small language models of packed integers are."""
    writer = Writer()
    one = writer.constant(np.array([1]))
    last = writer.node("Sub", writer.node("ReduceSum", "attention_mask", one, keepdims=0), one)
    total = writer.node("Gather", writer.node("Shape", "attention_mask"), writer.constant(np.array([1])))
    lengths = [writer.node("Cast", count, to=TensorProto.INT32) for count in (last, total)]
    angles = np.outer(np.arange(POSITIONS), 1 / 100 ** (np.arange(SIZE // 2) / SIZE))
    tables = [writer.constant(turn(angles).astype(np.float32)) for turn in (np.cos, np.sin)]
    rng = np.random.default_rng(5)
    skip = writer.node("Gather", writer.constant(rng.standard_normal((WORDS, WIDTH)).astype(np.float32)), "input_ids")
    scale = writer.constant(rng.uniform(0.5, 1.5, WIDTH).astype(np.float32))
    x = writer.node("SimplifiedLayerNormalization", skip, scale, axis=-1, epsilon=1e-5)

    def linear(x, size_k, size_n, outputs=None):
        weight = Weight(size_k, size_n, bits=bits, zeros=zeros, seed=len(writer.nodes))
        return writer.product(x, weight, accuracy_level, outputs=outputs)

    def gated(x):
        gate, up = linear(x, WIDTH, INNER), linear(x, WIDTH, INNER)
        gate = writer.node("Mul", gate, writer.node("Sigmoid", gate))
        return linear(writer.node("Mul", gate, up), INNER, WIDTH)

    for layer in range(LAYERS):
        packed = linear(x, WIDTH, (HEADS + 2 * KEY_HEADS) * SIZE)
        caches = [f"{layer}.{kind}" for kind in ("key", "value")]
        outputs = [f"attended.{layer}", *(f"present.{name}" for name in caches)]
        heads = {"num_heads": HEADS, "kv_num_heads": KEY_HEADS, "do_rotary": 1}
        inputs = [packed, "", "", *(f"past.{name}" for name in caches), *lengths, *tables]
        attended = writer.node("GroupQueryAttention", *inputs, outputs=outputs, domain=MICROSOFT, **heads)
        for part in (linear(attended, WIDTH, WIDTH), None):
            added = part or gated(x)
            names = [f"y.{len(writer.nodes)}", "", "", f"sum.{len(writer.nodes)}"]
            writer.node("SkipSimplifiedLayerNormalization", added, skip, scale, outputs=names, domain=MICROSOFT, epsilon=1e-5)
            x, skip = names[0], names[3]
    writer.nodes[-1].output[:] = [x]
    linear(x, WIDTH, WORDS, ["logits"])
    given = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])]
    given += [helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"])]
    cache = ["batch", KEY_HEADS, "past", SIZE]
    given += [helper.make_tensor_value_info(name, TensorProto.FLOAT, cache) for name in CACHES]
    return writer.model(given, ["logits", *PRESENTS])


LENGTHS = (1, 1, 1, 1, 2, 1, 3, 1, 1, 30, 1, 12, 1)
"""Tokens of runs, of which 12 and 30 go in parts."""
FEW_RUNS = sum(length < 4 for length in LENGTHS) - 2
"""Of few tokens but for those in which steps are fused, without and with compiling."""


class Decoding:
    """Runs of a model over a cache that grows, or is of some rows."""

    def __init__(self, session, capacity=0):
        self.session, self.library = session, ort_sdk if isinstance(session, ort_sdk.InferenceSession) else onnxruntime
        self.past, self.capacity = 0, capacity
        self.caches = {name: np.zeros((1, KEY_HEADS, capacity, SIZE), np.float32) for name in CACHES}
        if capacity:
            self.values = {name: self.library.OrtValue.ortvalue_from_numpy(array) for name, array in self.caches.items()}

    def step(self, length):
        feeds = {"input_ids": (np.arange(length) * 7 + self.past)[None] % WORDS}
        feeds["attention_mask"] = np.ones((1, self.past + length), np.int64)
        self.past += length
        if not self.capacity:
            logits, *caches = self.session.run(None, feeds | self.caches)
            self.caches = dict(zip(CACHES, caches, strict=True))
            return [logits, *caches]
        binding = self.session.io_binding()
        for name, array in feeds.items():
            binding.bind_cpu_input(name, array)
        binding.bind_output("logits")
        for name, present in zip(CACHES, PRESENTS, strict=True):
            binding.bind_ortvalue_input(name, self.values[name])
            binding.bind_ortvalue_output(present, self.values[name])
        self.session.run_with_iobinding(binding)
        return [binding.get_outputs()[0].numpy(), *(self.values[name].numpy()[:, :, : self.past] for name in CACHES)]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("capacity", [0, 100])
@pytest.mark.parametrize(("bits", "zeros"), [(4, "none"), (4, "packed"), (4, "float"), (8, "none")])
def test_decoders_beside_onnxruntime(done, bits, zeros, capacity, threads):
    model = decoder(bits, zeros, EXACT)
    ours, theirs = (Decoding(session_of(library, model, threads), capacity) for library in (ort_sdk, onnxruntime))
    for length in LENGTHS:
        for own, other in zip(ours.step(length), theirs.step(length), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-4, atol=2e-5)
    assert done.count(True) >= FEW_RUNS
    assert done.count(False) >= 2


ROUNDING = 1 / 254
"""Of an activation to 8 bits, at most, over the largest of those that have its scale."""


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("capacity", [0, 100])
@pytest.mark.parametrize(("bits", "zeros"), [(4, "none"), (4, "packed"), (4, "float"), (8, "none")])
def test_decoders_with_rounded_activations(done, monkeypatch, bits, zeros, capacity, threads):
    """What is rounded is the same one by one, but where another way of adding brings a number to the other side of a half."""
    model = decoder(bits, zeros, INT8)
    ours, others = (Decoding(session_of(ort_sdk, model, threads), capacity) for _ in range(2))
    for length in LENGTHS:
        found, count = ours.step(length), len(done)
        with monkeypatch.context() as context:
            context.setattr(
                "ort_sdk.run.program.shape_generic.ShapeGenericRunner._fuse",
                lambda self, feeds, control, **_: _plain(self, feeds, control),
            )
            expected = others.step(length)
        assert len(done) == count
        for own, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(own, other, rtol=0, atol=ROUNDING * np.abs(other).max())
    assert done.count(True) >= FEW_RUNS


def _plain(runs, feeds, control):
    """A run of the plan as it is."""
    from ort_sdk.run.executor import execute

    return execute(runs._original, feeds, control)


@pytest.mark.instruction_sets
@pytest.mark.parametrize("level", ["avx512", "avx2", "portable"])
def test_other_instruction_sets(level):
    if InstructionSet[level.upper()] >= instruction_set() or InstructionSet[level.upper()] > machine_instruction_set():
        pytest.skip("not below what is tested anyway")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(Path(__file__))]
    chosen = ["-k", "few_rows and 4 and 2 and packed or decoders and packed and 100"]
    environment = os.environ | {"ORT_SDK_CPU_ISA": level}
    done = subprocess.run([*command, *chosen], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
