"""Attention operators with a key-value cache by compiled tasks, beside onnxruntime and the shared set."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.attention import decode, group_query, operators, rotary
from ort_sdk_cpu.platform import libraries

import ort_sdk

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

MICROSOFT = "com.microsoft"
POSITIONS = 200
MAKERS = [(group_query._GroupQueryAttention, "call"), (operators._Attention, "call"), (rotary, "_rotated")]
"""What computes nodes by tasks."""


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(node, inputs, outputs, opset=23):
    given = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in inputs.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    domains = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph([node], "attention", given, made)
    return helper.make_model(graph, opset_imports=domains, ir_version=11).SerializeToString()


def made_of(model, threads=2):
    options = ort_sdk.SessionOptions()
    options.intra_op_num_threads = threads
    return ort_sdk.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@pytest.fixture
def calls(monkeypatch):
    """Calls of compiled tasks."""
    counted = []
    run = decode.CachedAttention.run
    monkeypatch.setattr(decode.CachedAttention, "run", lambda self: counted.append(1) or run(self))
    return counted


@pytest.fixture
def by_shared_set(monkeypatch):
    """Compares a session with one whose nodes the shared set computes; gives the latter's results."""

    def results(model, inputs):
        try:
            return made_of(model).run(None, inputs)
        except ort_sdk.api.OrtSdkError as error:
            return type(error)

    def check(model, inputs):
        found = results(model, inputs)
        with monkeypatch.context() as patch:
            for owner, name in MAKERS:
                patch.setattr(owner, name, lambda *_, **__: NotImplemented)
            expected = results(model, inputs)
        if isinstance(expected, type):
            assert found is expected
            return []
        for own, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(own, wanted, rtol=2e-5, atol=3e-6)
        return expected

    return check


def compare(model, inputs, calls, *, expects_task=True, rtol=2e-5, atol=3e-6):
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, inputs)
    session = made_of(model)
    for _ in range(3):
        for found, wanted in zip(session.run(None, inputs), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
    assert bool(calls) == expects_task
    return expected


GROUP = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos", "sin")
GROUP_MORE = (*GROUP, "position_ids", "attention_bias", "head_sink")


def group_case(
    heads=4, key_heads=2, size=32, length=1, past=70, batch=1, packed=False, rotary=0, pasts=None, capacity=None, **more
):
    """Inputs of GroupQueryAttention; ``pasts`` are the tokens each sequence has of a cache of ``capacity``."""
    pasts = [past] * batch if pasts is None else pasts
    totals = np.array(pasts, np.int32) + length
    width = (heads + 2 * key_heads if packed else heads) * size
    inputs = {"query": random(batch, length, width)}
    if not packed:
        inputs |= {
            "key": random(batch, length, key_heads * size, seed=1),
            "value": random(batch, length, key_heads * size, seed=2),
        }
    rows = max(pasts) if capacity is None else capacity
    if rows:
        inputs |= {
            "past_key": random(batch, key_heads, rows, size, seed=3),
            "past_value": random(batch, key_heads, rows, size, seed=4),
        }
    inputs |= {"seqlens_k": totals - 1, "total_sequence_length": np.array([totals.max()], np.int32)}
    if rotary:
        angles = np.outer(np.arange(POSITIONS), 1 / 100 ** (np.arange(rotary // 2) / rotary))
        inputs |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    return inputs | more


def group_model(inputs, heads=4, key_heads=2, **attributes):
    names = [name if name in inputs else "" for name in GROUP_MORE]
    while not names[-1]:
        names.pop()
    outputs = ["y", "present_key", "present_value"]
    more = {"num_heads": heads, "kv_num_heads": key_heads} | attributes
    return model_of(helper.make_node("GroupQueryAttention", names, outputs, domain=MICROSOFT, **more), inputs, outputs)


LENGTHS = [(1, 70), (1, 150), (3, 20), (40, 0), (5, 130), (33, 64)]


@pytest.mark.parametrize(("length", "past"), LENGTHS)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("interleaved", "rotary"), [(0, 0), (0, 32), (1, 32), (0, 16), (1, 16)])
def test_group_query_attention(calls, length, past, packed, interleaved, rotary):
    inputs = group_case(length=length, past=past, packed=packed, rotary=rotary)
    # ONNX Runtime takes partly rotated heads only with packed projections, or not at all, depending on its version.
    if rotary == 16 and not packed:
        return
    compare(group_model(inputs, do_rotary=int(rotary > 0), rotary_interleaved=interleaved), inputs, calls)


@pytest.mark.parametrize(("length", "past"), LENGTHS)
@pytest.mark.parametrize(
    "attributes", [{"local_window_size": 16}, {"softcap": 2.0}, {"smooth_softmax": 1}, {"scale": 0.3}], ids=str
)
@pytest.mark.parametrize(("heads", "key_heads"), [(4, 4), (6, 1), (8, 2)])
def test_group_query_attention_that_hides_or_caps(calls, length, past, attributes, heads, key_heads):
    inputs = group_case(heads, key_heads, length=length, past=past, rotary=32)
    compare(group_model(inputs, heads, key_heads, do_rotary=1, **attributes), inputs, calls)


@pytest.mark.parametrize(("length", "past"), LENGTHS)
def test_group_query_attention_with_sinks_and_bias(calls, length, past):
    total = length + past
    inputs = group_case(length=length, past=past, rotary=32, head_sink=random(4, seed=8))
    compare(group_model(inputs, do_rotary=1), inputs, calls)
    for shape in ((1, 1, length, total), (1, 4, length, total)):
        biased = group_case(length=length, past=past, rotary=32, attention_bias=random(*shape, seed=9))
        compare(group_model(biased, do_rotary=1), biased, calls)


@pytest.mark.parametrize("length", [1, 3, 40])
def test_group_query_attention_with_positions(calls, length):
    # ONNX Runtime looks at the first position of a prompt only.
    positions = (np.arange(length)[None] + 5).astype(np.int64)
    inputs = group_case(length=length, past=0 if length > 1 else 60, rotary=32, position_ids=positions)
    compare(group_model(inputs, do_rotary=1), inputs, calls)


@pytest.mark.parametrize("positions", [[[3, 9, 1]], [[0, POSITIONS, 1]], [[-1, 2, 3]]])
def test_positions_in_any_order(positions, by_shared_set):
    inputs = group_case(length=3, past=10, rotary=32, position_ids=np.array(positions, np.int64))
    by_shared_set(group_model(inputs, do_rotary=1), inputs)


@pytest.mark.parametrize(("length", "pasts"), [(1, [5, 70, 31]), (1, [130, 2, 64])])
@pytest.mark.parametrize("capacity", [None, 160])
def test_sequences_of_several_lengths(calls, length, pasts, capacity):
    inputs = group_case(length=length, batch=3, pasts=pasts, capacity=capacity, rotary=32)
    model = group_model(inputs, do_rotary=1)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, inputs)
    found = made_of(model).run(None, inputs)
    np.testing.assert_allclose(found[0], expected[0], rtol=2e-5, atol=2e-6)
    for cache, wanted in zip(found[1:], expected[1:], strict=True):
        assert cache.shape == wanted.shape
        for index, past in enumerate(pasts):
            kept = slice(0, past + length)
            np.testing.assert_allclose(cache[index, :, kept], wanted[index, :, kept], rtol=2e-5, atol=2e-6)
    assert calls


@pytest.mark.parametrize(("size", "heads", "key_heads"), [(16, 2, 2), (96, 3, 3), (80, 2, 1), (128, 20, 1)])
@pytest.mark.parametrize(("length", "past"), [(1, 40), (7, 30), (20, 0)])
def test_sizes_of_heads(calls, size, heads, key_heads, length, past):
    inputs = group_case(heads, key_heads, size, length=length, past=past, rotary=size)
    compare(group_model(inputs, heads, key_heads, do_rotary=1), inputs, calls)


@pytest.mark.parametrize(("size", "rotary"), [(20, 20), (6, 4), (34, 10), (50, 0)])
@pytest.mark.parametrize(("length", "past"), [(1, 40), (7, 30), (40, 0)])
@pytest.mark.parametrize("more", [{}, {"rotary_interleaved": 1, "local_window_size": 5}, {"causal": 0}])
def test_sizes_that_fill_no_vectors(by_shared_set, size, rotary, length, past, more):
    inputs = group_case(6, 2, size, length=length, past=past, rotary=rotary, capacity=past and past + 3)
    by_shared_set(group_model(inputs, 6, 2, do_rotary=int(rotary > 0), **more), inputs)


def test_a_cache_longer_than_its_tokens_keeps_its_length(by_shared_set):
    inputs = group_case(past=40, capacity=100, rotary=32)
    assert by_shared_set(group_model(inputs, do_rotary=1), inputs)[1].shape == (1, 2, 100, 32)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seqlens_k": np.array([0], np.int32), "query": random(1, 3, 128)},
        {"key": random(1, 1, 32)},
        {"attention_bias": random(1, 1, 1, 50)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_contradicts_itself_is_left_to_the_shared_set(calls, wrong):
    inputs = group_case(rotary=32) | wrong
    with pytest.raises(ort_sdk.api.OrtSdkError):
        made_of(group_model(inputs, do_rotary=1)).run(None, inputs)
    assert not calls


def heads_case(length, past, *, heads=4, key_heads=2, size=32, four=False, value_size=None):
    """Queries, keys and values, and a past if there is one, as Attention takes them."""
    value_size = size if value_size is None else value_size
    sizes = {"query": (heads, size), "key": (key_heads, size), "value": (key_heads, value_size)}
    inputs = {
        name: random(2, own, length, width, seed=seed) if four else random(2, length, own * width, seed=seed)
        for seed, (name, (own, width)) in enumerate(sizes.items())
    }
    if past:
        inputs |= {
            "past_key": random(2, key_heads, past, size, seed=5),
            "past_value": random(2, key_heads, past, value_size, seed=6),
        }
    return inputs


def attention_model(inputs, has_present, **attributes):
    names = [name if name in inputs else "" for name in ("query", "key", "value", "mask", "past_key", "past_value")]
    while not names[-1]:
        names.pop()
    outputs = ["y", "present_key", "present_value"] if has_present else ["y"]
    if inputs["query"].ndim == 3:
        attributes = {"q_num_heads": 4, "kv_num_heads": 2} | attributes
    return model_of(helper.make_node("Attention", names, outputs, **attributes), inputs, outputs)


MASKS = {
    "none": lambda *_: {},
    "bool": lambda length, keys: {"mask": random(length, keys, seed=7) < 1},
    "numbers": lambda length, keys: {"mask": random(2, 1, length, keys, seed=7)},
    "of heads": lambda length, keys: {"mask": random(2, 4, length, keys, seed=7)},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"softcap": 1.5}, {"scale": 0.3, "is_causal": 1}], ids=str)
@pytest.mark.parametrize("four", [False, True])
@pytest.mark.parametrize(("length", "past"), [(1, 70), (3, 65), (40, 0), (33, 64)])
def test_attention(calls, length, past, four, attributes, mask):
    inputs = heads_case(length, past, four=four) | MASKS[mask](length, past + length)
    compare(attention_model(inputs, past > 0, **attributes), inputs, calls)


def test_attention_with_values_of_another_size_and_hidden_queries(calls, by_shared_set):
    inputs = heads_case(5, 40, four=True, value_size=48) | {"mask": np.arange(45) < np.array([[9], [0], [45], [1], [3]])}
    result, *_ = by_shared_set(attention_model(inputs, has_present=True), inputs)
    assert (result[:, :, 1] == 0).all()
    assert calls


def multi_head_model(inputs, has_present, **attributes):
    named = ("query", "key", "value", "bias", "mask", "attention_bias", "past_key", "past_value")
    names = [name if name in inputs else "" for name in named]
    while not names[-1]:
        names.pop()
    outputs = ["y", "present_key", "present_value"] if has_present else ["y"]
    node = helper.make_node("MultiHeadAttention", names, outputs, domain=MICROSOFT, num_heads=4, **attributes)
    return model_of(node, inputs, outputs)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("more", ["none", "attention_bias", "mask"])
@pytest.mark.parametrize("attributes", [{}, {"unidirectional": 1}, {"scale": 0.3}], ids=str)
@pytest.mark.parametrize(("length", "past"), [(1, 70), (40, 0), (3, 65)])
def test_multi_head_attention_with_a_cache(calls, length, past, attributes, more, bias):
    inputs = heads_case(length, past, key_heads=4)
    if bias:
        inputs["bias"] = random(3 * 128, seed=9)
    if more == "attention_bias":
        inputs[more] = random(2, 4, length, past + length, seed=8)
    if more == "mask":
        inputs[more] = np.array([[1] * (past + length), [1] * (past + length - 1) + [0]], np.int32)
    model = multi_head_model(inputs, has_present=True, **attributes)
    is_left = more == "mask" and length > 1 and "unidirectional" in attributes
    compare(model, inputs, calls, expects_task=not is_left)


@pytest.mark.parametrize("length", [1, 5])
def test_attention_over_keys_of_an_encoder(calls, length):
    inputs = {"query": random(2, length, 256), "key": random(2, 4, 600, 64, seed=1), "value": random(2, 4, 600, 64, seed=2)}
    compare(multi_head_model(inputs, has_present=False), inputs, calls)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_shared_buffer_is_filled_in_place(threads, monkeypatch):
    filled = []
    run = decode.CachedAttention.run
    monkeypatch.setattr(decode.CachedAttention, "run", lambda self: filled.append(self.is_in_place) or run(self))
    case = group_case(past=3, capacity=40, rotary=32)
    model = group_model(case, do_rotary=1)
    ours, theirs = made_of(model, threads), onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    caches = {session: [case[name].copy() for name in ("past_key", "past_value")] for session in (ours, theirs)}
    for total in range(4, 12):
        results = []
        for session, library in ((ours, ort_sdk), (theirs, onnxruntime)):
            binding = session.io_binding()
            feeds = case | {name: random(*case[name].shape, seed=total) for name in ("query", "key", "value")}
            feeds |= {"seqlens_k": np.array([total - 1], np.int32), "total_sequence_length": np.array([total], np.int32)}
            values = [library.OrtValue.ortvalue_from_numpy(cache) for cache in caches[session]]
            for name, array in feeds.items():
                if not name.startswith("past"):
                    binding.bind_cpu_input(name, array)
            binding.bind_output("y")
            for kind, value in zip(("key", "value"), values, strict=True):
                binding.bind_ortvalue_input(f"past_{kind}", value)
                binding.bind_ortvalue_output(f"present_{kind}", value)
            session.run_with_iobinding(binding)
            results.append(binding.get_outputs()[0].numpy().copy())
        np.testing.assert_allclose(results[0], results[1], rtol=2e-5, atol=2e-6)
        for own, other in zip(caches[ours], caches[theirs], strict=True):
            np.testing.assert_allclose(own[:, :, :total], other[:, :, :total], rtol=2e-5, atol=2e-6)
    assert filled == [True] * 8


def test_a_buffer_that_others_read_is_not_filled_in_place(calls):
    case = group_case(past=3, capacity=40)
    model = onnx.load_from_string(group_model(case))
    model.graph.node.append(helper.make_node("Neg", ["past_key"], ["negative"]))
    model.graph.output.append(helper.make_tensor_value_info("negative", TensorProto.FLOAT, None))
    session = made_of(model.SerializeToString())
    before = case["past_key"].copy()
    binding = session.io_binding()
    values = {name: ort_sdk.OrtValue.ortvalue_from_numpy(array) for name, array in case.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_ortvalue_output("present_key", values["past_key"])
    binding.bind_output("negative")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.get_outputs()[1].numpy(), -before)
    assert (values["past_key"].numpy()[:, :, 3] == case["key"].reshape(1, 2, 32)).all()
    assert calls


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize(
    ("shape", "pairs"), [((2, 7, 4 * 32), 16), ((2, 4, 7, 32), 16), ((2, 7, 4 * 32), 8), ((1, 90, 4 * 96), 48)]
)
@pytest.mark.parametrize("positions", ["tokens", "first", "none"])
def test_rotary_embedding(by_shared_set, interleaved, shape, pairs, positions):
    length, size = shape[2 if len(shape) == 4 else 1], shape[-1] if len(shape) == 4 else shape[-1] // 4
    inputs = {"x": random(*shape), "cos": random(POSITIONS, pairs, seed=1), "sin": random(POSITIONS, pairs, seed=2)}
    attributes = {"interleaved": interleaved} | ({"num_heads": 4, "rotary_embedding_dim": 2 * pairs} if 2 * pairs < size else {})
    ids = np.random.default_rng(3).integers(0, POSITIONS, (shape[0], length))
    if positions == "none":
        inputs |= {name: random(shape[0], length, pairs, seed=4) for name in ("cos", "sin")}
        node = helper.make_node("RotaryEmbedding", ["x", "cos", "sin"], ["y"], **{"num_heads": 4} | attributes)
        by_shared_set(model_of(node, inputs, ["y"]), inputs)
        return
    inputs["ids"] = ids if positions == "tokens" else np.array([11])
    names = ["x", "ids", "cos", "sin"]
    node = helper.make_node("RotaryEmbedding", names, ["y"], domain=MICROSOFT, **attributes)
    model = model_of(node, inputs, ["y"])
    by_shared_set(model, inputs)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, inputs)[0]
    np.testing.assert_allclose(made_of(model).run(None, inputs)[0], expected, rtol=1e-5, atol=1e-6)
    if positions == "tokens":
        standard = helper.make_node("RotaryEmbedding", ["x", "cos", "sin", "ids"], ["y"], **{"num_heads": 4} | attributes)
        by_shared_set(model_of(standard, inputs, ["y"]), inputs)
