"""Decoders whose past or mask grows by a token in each run: one program of the main graph serves all lengths."""

from __future__ import annotations

import gc
import threading
import tracemalloc

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import ort_sdk as ort
from ort_sdk.run import types
from ort_sdk.run.program.cache import ProgramCache
from ort_sdk.run.program.dynamic_shapes import DynamicKey
from ort_sdk.run.program.lowering import fusion

pytest.importorskip("ort_sdk_cpu")

MICROSOFT = "com.microsoft"
WORDS, HEADS, KEY_HEADS, SIZE, INNER, LAYERS, ROWS = 61, 4, 2, 16, 96, 4, 200
WIDTH, BLOCK = HEADS * SIZE, 32
CACHES = [f"past.{layer}.{kind}" for layer in range(LAYERS) for kind in ("key", "value")]
PRESENTS = [name.replace("past", "present") for name in CACHES]
TOLERANCE = {np.float32: 2e-4, np.float16: 2e-2}
"""Of logits of some units, after so few layers of sums of some hundred numbers that are rounded to the type."""


class _Writer:
    def __init__(self, dtype):
        self.dtype, self.rng, self.nodes, self.weights = dtype, np.random.default_rng(0), [], []

    def node(self, op_type, *inputs, outputs=1, domain="", **attributes):
        names = [f"{op_type}_{len(self.nodes)}_{index}" for index in range(outputs)] if isinstance(outputs, int) else outputs
        self.nodes.append(helper.make_node(op_type, list(inputs), names, domain=domain, **attributes))
        return names[0]

    def constant(self, array):
        self.weights.append(numpy_helper.from_array(np.asarray(array), f"w{len(self.weights)}"))
        return self.weights[-1].name

    def product(self, x, size_k, size_n):
        """By a weight of 4 bits."""
        blocks = -(-size_k // BLOCK)
        codes = self.rng.integers(0, 256, (size_n, blocks, BLOCK // 2), np.uint8)
        scales = self.rng.uniform(0.5, 1.5, (size_n, blocks)) * 0.2 / size_k**0.5
        names = [self.constant(codes), self.constant(scales.astype(self.dtype))]
        sizes = {"K": size_k, "N": size_n, "bits": 4, "block_size": BLOCK, "accuracy_level": 1}
        return self.node("MatMulNBits", x, *names, domain=MICROSOFT, **sizes)

    def normalized(self, x, skip):
        name = f"norm{len(self.nodes)}"
        scale = self.constant(self.rng.uniform(0.5, 1.5, WIDTH).astype(self.dtype))
        outputs = [name, "", "", f"{name}.sum"]
        self.node("SkipSimplifiedLayerNormalization", x, skip, scale, outputs=outputs, domain=MICROSOFT, epsilon=1e-5)
        return name, f"{name}.sum"


def decoder(dtype=np.float32):
    """Quantised, as onnxruntime-genai builds them."""
    writer = _Writer(dtype)
    node = writer.node
    one = writer.constant(np.array([1]))
    last = node("Cast", node("Sub", node("ReduceSum", "attention_mask", one, keepdims=0), one), to=TensorProto.INT32)
    total = node("Cast", node("Gather", node("Shape", "attention_mask"), writer.constant(np.array([1]))), to=TensorProto.INT32)
    angles = np.outer(np.arange(ROWS), 1 / 100 ** (np.arange(SIZE // 2) / SIZE))
    tables = [writer.constant(turn(angles).astype(dtype)) for turn in (np.cos, np.sin)]
    x = skip = node("Gather", writer.constant(writer.rng.standard_normal((WORDS, WIDTH)).astype(dtype)), "input_ids")
    for layer in range(LAYERS):
        caches = [name for name in CACHES if f".{layer}." in name]
        packed = writer.product(x, WIDTH, (HEADS + 2 * KEY_HEADS) * SIZE)
        outputs = [f"attended{layer}", *(name.replace("past", "present") for name in caches)]
        settings = {"num_heads": HEADS, "kv_num_heads": KEY_HEADS, "do_rotary": 1}
        node("GroupQueryAttention", packed, "", "", *caches, last, total, *tables, outputs=outputs, domain=MICROSOFT, **settings)
        x, skip = writer.normalized(writer.product(outputs[0], WIDTH, WIDTH), skip)
        gate, up = (writer.product(x, WIDTH, INNER) for _ in range(2))
        hidden = node("Mul", node("Mul", gate, node("Sigmoid", gate)), up)
        x, skip = writer.normalized(writer.product(hidden, INNER, WIDTH), skip)
    node("Identity", writer.product(x, WIDTH, WORDS), outputs=["logits"])
    floats = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", name]) for name in ("input_ids", "attention_mask")]
    given += [helper.make_tensor_value_info(name, floats, ["batch", KEY_HEADS, "past", SIZE]) for name in CACHES]
    made = [helper.make_tensor_value_info(name, floats, None) for name in ("logits", *PRESENTS)]
    graph = helper.make_graph(writer.nodes, "decoder", given, made, writer.weights)
    domains = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=10).SerializeToString()


def opened(library, model, **config):
    options = library.SessionOptions()
    options.intra_op_num_threads = 1
    for key, value in config.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return library.InferenceSession(model, options, providers=["CPUExecutionProvider"])


class Chat:
    """A sequence in one session that gets longer; its logits are kept."""

    def __init__(self, session, dtype, batch=1):
        self.session, self.logits = session, []
        self.state = [np.zeros((batch, KEY_HEADS, 0, SIZE), dtype)] * len(CACHES)

    def feeds(self, ids):
        length = self.state[0].shape[2] + ids.shape[1]
        mask = np.ones((len(ids), length), np.int64)
        return {"input_ids": ids, "attention_mask": mask} | dict(zip(CACHES, self.state, strict=True))

    def take(self, ids):
        logits, *self.state = self.session.run(["logits", *PRESENTS], self.feeds(ids))
        self.logits.append(logits)

    def back_to(self, length):
        self.state = [np.ascontiguousarray(cache[:, :, :length]) for cache in self.state]


def are_near(ours, theirs, dtype):
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own.astype(np.float64), other.astype(np.float64), rtol=0, atol=TOLERANCE[dtype])


@pytest.fixture(autouse=True)
def products_of_their_own(monkeypatch):
    """Sequences of the CPU provider leave products of packed integers alone: all layers would be one call without a program."""
    monkeypatch.setattr("ort_sdk_cpu.fusion.transformer.layers.nbits_step", lambda _step, _program: None)


def open_rows(session):
    return [row for row in session.program_report() if isinstance(row.signature, DynamicKey)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_prompt_and_its_tokens(dtype):
    model = decoder(dtype)
    sessions = [opened(ort, model), opened(onnxruntime, model)]
    chats = [Chat(session, dtype) for session in sessions]
    rng, kept = np.random.default_rng(1), []
    for length in (7, *[1] * 40):
        ids = rng.integers(0, WORDS, (1, length))
        for chat in chats:
            chat.take(ids)
        kept.append([(array, array.copy()) for array in (chats[0].logits[-1], *chats[0].state)])
        are_near(chats[0].state, chats[1].state, dtype)
    are_near(chats[0].logits, chats[1].logits, dtype)
    assert all(np.array_equal(array, copy) for arrays in kept for array, copy in arrays)
    (row,) = open_rows(sessions[0])
    assert row.bound_count > len(row.operators) // 2


def test_a_program_is_judged_once_providers_might_compile_for_it(monkeypatch):
    """At first, steps may be fused less than they will be."""
    judged = []
    may_pay = ProgramCache._may_pay
    monkeypatch.setattr(ProgramCache, "_may_pay", lambda self, calls: judged.append(calls) or may_pay(self, calls))
    fuse = fusion.fuse_steps
    monkeypatch.setattr(
        fusion,
        "fuse_steps",
        lambda whole, providers, *, may_compile, **more: (
            fuse(whole, providers, may_compile=True, **more) if may_compile else fusion.Fused(whole, (), is_complete=False)
        ),
    )
    monkeypatch.setattr(types, "SECONDS_BEFORE_COMPILING", 0.0)
    session, rng = opened(ort, decoder()), np.random.default_rng(7)
    chat, other = Chat(session, np.float32), Chat(opened(onnxruntime, decoder()), np.float32)
    for _ in range(16):
        ids = rng.integers(0, WORDS, (1, 1))
        chat.take(ids)
        other.take(ids)
    are_near(chat.logits, other.logits, np.float32)
    (row,) = open_rows(session)
    assert row.fused
    assert len(judged) == 3  # before it was made each time, and behind the second


def test_lengths_that_jump_and_batches_that_change():
    model = decoder()
    ours, theirs = opened(ort, model), opened(onnxruntime, model)
    rng = np.random.default_rng(2)
    for batch, prompts in ((1, [3, 9]), (2, [5]), (1, [1, 4]), (3, [2]), (1, [12])):
        chats = [Chat(session, np.float32, batch) for session in (ours, theirs)]
        for prompt in prompts:
            for length in (prompt, *[1] * int(rng.integers(3, 15))):
                ids = rng.integers(0, WORDS, (batch, length))
                for chat in chats:
                    chat.take(ids)
            for chat in chats:
                chat.back_to(2)
        are_near(chats[0].logits, chats[1].logits, np.float32)
    assert open_rows(ours)


def test_random_runs_beside_steps():
    """Any runs in any order give what they give step by step."""
    model = decoder()
    chats = [Chat(opened(ort, model), np.float32), Chat(opened(ort, model, session__disable_programs="1"), np.float32)]
    rng = np.random.default_rng(3)
    for _ in range(150):
        action = rng.random()
        batch, length = chats[0].state[0].shape[0], chats[0].state[0].shape[2]
        if action < 0.05 or length > 100:
            state = [rng.standard_normal((int(rng.integers(1, 3)), KEY_HEADS, int(rng.integers(0, 20)), SIZE), np.float32)]
            for chat in chats:
                chat.state = state * len(CACHES)
            continue
        if action < 0.1:
            for chat in chats:
                chat.back_to(length // 2)
        ids = rng.integers(0, WORDS, (batch, int(rng.integers(2, 9)) if action > 0.95 else 1))
        for chat in chats:
            chat.take(ids)
    are_near(chats[0].logits, chats[1].logits, np.float32)
    assert open_rows(chats[0].session)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("is_shared", [False, True])
def test_caches_bound_by_the_caller(dtype, is_shared):
    model = decoder(dtype)
    session, theirs = opened(ort, model), Chat(opened(onnxruntime, model), dtype)
    rng, past = np.random.default_rng(4), 0
    shape = (1, KEY_HEADS, 64 if is_shared else 0, SIZE)
    values = [ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, dtype)) for _ in CACHES]
    buffers = [value.numpy() for value in values]
    for length in (5, *[1] * 30):
        ids = rng.integers(0, WORDS, (1, length))
        binding = session.io_binding()
        binding.bind_cpu_input("input_ids", ids)
        binding.bind_cpu_input("attention_mask", np.ones((1, past + length), np.int64))
        binding.bind_output("logits")
        for name, present, value in zip(CACHES, PRESENTS, values, strict=True):
            binding.bind_ortvalue_input(name, value)
            if is_shared:
                binding.bind_ortvalue_output(present, value)
            else:
                binding.bind_output(present)
        session.run_with_iobinding(binding)
        logits, *made = binding.get_outputs()
        past += length
        theirs.take(ids)
        are_near([logits.numpy()], theirs.logits[-1:], dtype)
        values = values if is_shared else made
        are_near([value.numpy()[:, :, :past] for value in values], theirs.state, dtype)
    if is_shared:
        assert all(value.numpy()[0, 0, 0, 0] == buffer[0, 0, 0, 0] for value, buffer in zip(values, buffers, strict=True))
    assert open_rows(session)


def test_chats_on_threads():
    model = decoder()
    session, reference = opened(ort, model), opened(onnxruntime, model)
    failures = []

    def talk(seed):
        rng = np.random.default_rng(seed)
        own, other = Chat(session, np.float32), Chat(reference, np.float32)
        try:
            for length in (int(rng.integers(2, 9)), *[1] * 25):
                ids = rng.integers(0, WORDS, (1, length))
                own.take(ids)
                other.take(ids)
            are_near(own.logits, other.logits, np.float32)
        except Exception as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    threads = [threading.Thread(target=talk, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_text_again_and_again_makes_no_further_programs():
    """Short chats of the same lengths over and over are served by the program there is, and memory stays as it is."""
    session = opened(ort, decoder())
    rng = np.random.default_rng(5)

    def talk():
        chat = Chat(session, np.float32)
        for length in (6, *[1] * 20):
            chat.take(rng.integers(0, WORDS, (1, length)))

    tracemalloc.start()
    try:
        kept = []
        for _ in range(2):
            for _ in range(8):
                talk()
            gc.collect()
            kept.append((tracemalloc.get_traced_memory()[0], len(session.program_report())))
    finally:
        tracemalloc.stop()
    assert kept[1][1] == kept[0][1]
    assert kept[1][0] <= kept[0][0] + (1 << 16)


def test_a_length_that_comes_again_and_again_gets_a_program_of_its_own():
    session = opened(ort, decoder())
    chat, rng = Chat(session, np.float32), np.random.default_rng(6)
    for _ in range(14):
        chat.take(rng.integers(0, WORDS, (1, 1)))
    (row,) = open_rows(session)
    state = chat.state
    for _ in range(40):
        chat.state = state
        chat.take(np.array([[3]]))
    exact = [each for each in session.program_report() if not isinstance(each.signature, DynamicKey)]
    assert len(exact) == 1
    assert exact[0].bound_count > row.bound_count
    are_near(chat.logits[-1:], chat.logits[-40:-39], np.float32)


def test_what_does_not_pay_is_not_made():
    """All steps depend on the lengths that change: runs without a program are as good."""
    nodes = [helper.make_node("Softmax", [f"x{index}" if index else "x"], [f"x{index + 1}"], axis=0) for index in range(40)]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    made = [helper.make_tensor_value_info("x40", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", given, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    session, reference = opened(ort, model), opened(onnxruntime, model)
    for length in range(1, 30):
        feeds = {"x": np.arange(4 * length, dtype=np.float32).reshape(length, 4)}
        np.testing.assert_allclose(session.run(None, feeds)[0], reference.run(None, feeds)[0], rtol=1e-5, atol=1e-6)
    assert not session.program_report()
