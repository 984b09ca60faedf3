"""Attention over a cache as tasks of programs, whose past and present are other arrays in each run, beside onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.attention import decode, group_query, operators, rotary
from ort_sdk_cpu.platform import libraries

import ort_sdk

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

MICROSOFT = "com.microsoft"
HEADS, KEY_HEADS, SIZE, ROWS = 4, 2, 32, 300
RUNS_BEFORE_BINDING = 3


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model_of(node, inputs, outputs, constants=()):
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
        if name not in constants
    ]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    fixed = [numpy_helper.from_array(inputs[name], name) for name in constants]
    domains = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    graph = helper.make_graph([node], "attention", given, made, fixed)
    return helper.make_model(graph, opset_imports=domains, ir_version=11).SerializeToString()


def session_of(library, model, threads=2):
    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    return library.InferenceSession(model, options, providers=["CPUExecutionProvider"])


@pytest.fixture
def python_calls(monkeypatch):
    """Runs of nodes whose arguments were worked out for the run."""
    counted = []
    run = decode.CachedAttention.run
    monkeypatch.setattr(decode.CachedAttention, "run", lambda self: counted.append(1) or run(self))
    for owner in (group_query._GroupQueryAttention, operators._Attention, operators.MultiHead):
        monkeypatch.setattr(owner, "call", lambda *args, made=owner.call: counted.append(1) or made(*args))
    return counted


def compare(model, feeds_of_run, python_calls, *, is_bound=True, runs=7, threads=2, filled=lambda run, array: array):
    """Results of some runs on new arrays, and whether the last needed no Python for the node.

    ``filled`` gives what is to be compared: rows of a cache behind its tokens may be anything.
    """
    ours, theirs = session_of(ort_sdk, model, threads), session_of(onnxruntime, model, threads)
    held = []
    for run in range(runs):
        feeds, before = feeds_of_run(run), len(python_calls)
        expected, found = theirs.run(None, feeds), ours.run(None, feeds)
        held.append((found, expected))
        assert run < RUNS_BEFORE_BINDING or (len(python_calls) == before) == is_bound
    # All are compared at the end: no run writes into the results of another.
    for run, (found, expected) in enumerate(held):
        for own, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(filled(run, own), filled(run, other), rtol=2e-5, atol=3e-6)
    return ours


GROUP = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total", "cos", "sin", "ids", "bias", "sinks")


def group_feeds(run, *, length=1, past=70, batch=1, packed=False, rows=None, longest=None, more=()):
    """Inputs; ``rows`` of the past and ``longest`` are those of the tokens unless they are given."""
    rows, longest = past if rows is None else rows, past + length if longest is None else longest
    width = (HEADS + 2 * KEY_HEADS if packed else HEADS) * SIZE
    feeds = {"query": random(batch, length, width, seed=run)}
    if not packed:
        feeds |= {name: random(batch, length, KEY_HEADS * SIZE, seed=run + 10) for name in ("key", "value")}
    if rows:
        feeds |= {name: random(batch, KEY_HEADS, rows, SIZE, seed=run + 20 + len(name)) for name in ("past_key", "past_value")}
    feeds |= {"seqlens_k": np.full(batch, past + length - 1, np.int32), "total": np.array([longest], np.int32)}
    angles = np.outer(np.arange(ROWS), 1 / 100 ** (np.arange(SIZE // 2) / SIZE))
    feeds |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    if "ids" in more:
        feeds["ids"] = np.random.default_rng(run).integers(0, ROWS, (batch, length))
    if "bias" in more:
        feeds["bias"] = random(batch, HEADS, length, longest, seed=run + 30)
    if "sinks" in more:
        feeds["sinks"] = random(HEADS, seed=run + 40)
    return feeds


CONSTANTS = ("total", "cos", "sin")


def group_model(feeds, outputs=("y", "present_key", "present_value"), **attributes):
    names = [name if name in feeds else "" for name in GROUP]
    while not names[-1]:
        names.pop()
    settings = {"num_heads": HEADS, "kv_num_heads": KEY_HEADS, "do_rotary": 1} | attributes
    return model_of(
        helper.make_node("GroupQueryAttention", names, outputs, domain=MICROSOFT, **settings), feeds, outputs, CONSTANTS
    )


def run_feeds(feeds):
    return {name: array for name, array in feeds.items() if name not in CONSTANTS}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("length", "past"), [(1, 0), (1, 1), (1, 16), (1, 250), (3, 70), (40, 0), (40, 200)])
def test_group_query_attention(python_calls, length, past, packed, threads):
    settings = {"length": length, "past": past, "packed": packed}
    model = group_model(group_feeds(0, **settings))
    compare(model, lambda run: run_feeds(group_feeds(run, **settings)), python_calls, threads=threads)


@pytest.mark.parametrize(
    "attributes",
    [
        {"local_window_size": 16},
        {"softcap": 2.0},
        {"smooth_softmax": 1},
        {"scale": 0.3},
        {"rotary_interleaved": 1},
        {"do_rotary": 0},
    ],
    ids=str,
)
@pytest.mark.parametrize(("length", "past"), [(1, 70), (20, 70)])
def test_attributes_of_group_query_attention(python_calls, length, past, attributes):
    model = group_model(group_feeds(0, length=length, past=past), **attributes)
    compare(model, lambda run: run_feeds(group_feeds(run, length=length, past=past)), python_calls)


@pytest.mark.parametrize("more", [("ids",), ("bias",), ("sinks",), ("bias", "sinks")], ids=str)
@pytest.mark.parametrize("length", [1, 20])
def test_further_inputs_of_group_query_attention(python_calls, length, more):
    model = group_model(group_feeds(0, length=length, more=more))
    compare(model, lambda run: run_feeds(group_feeds(run, length=length, more=more)), python_calls)


def test_lengths_of_sequences_may_be_others_in_each_run(python_calls):
    pasts = [np.array(each) for each in ([3, 60], [60, 60], [0, 1], [7, 13], [59, 2], [1, 1], [30, 60])]

    def feeds(run):
        made = group_feeds(run, past=60, batch=2, rows=60, longest=61)
        return run_feeds(made | {"seqlens_k": pasts[run].astype(np.int32)})

    def filled(run, array):
        return (
            array
            if array.ndim == 3
            else np.concatenate([each[:, : past + 1] for each, past in zip(array, pasts[run], strict=True)], 1)
        )

    compare(group_model(group_feeds(0, past=60, batch=2)), feeds, python_calls, filled=filled)


def test_only_the_result_is_asked_for(python_calls):
    model = group_model(group_feeds(0), outputs=("y",))
    session = session_of(ort_sdk, model)
    whole = session_of(onnxruntime, group_model(group_feeds(0)))
    for run in range(6):
        feeds = run_feeds(group_feeds(run))
        np.testing.assert_allclose(session.run(None, feeds)[0], whole.run(["y"], feeds)[0], rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("wrong", [{"seqlens_k": np.array([71], np.int32)}, {"seqlens_k": np.array([-3], np.int32)}], ids=str)
def test_lengths_that_contradict_others_are_left_to_the_shared_set(python_calls, monkeypatch, wrong):
    def outcomes(session):
        found = []
        for run in range(6):
            feeds = run_feeds(group_feeds(run)) | (wrong if run >= RUNS_BEFORE_BINDING else {})
            try:
                found.append(session.run(None, feeds))
            except ort_sdk.api.OrtSdkError as error:
                found.append(type(error))
        return [*found, session.run(None, run_feeds(group_feeds(9)))]

    model = group_model(group_feeds(0))
    found = outcomes(session_of(ort_sdk, model))
    with monkeypatch.context() as patch:
        patch.setattr(group_query._GroupQueryAttention, "call", lambda *_: NotImplemented)
        patch.delattr(group_query._GroupQueryAttention, "bind")
        expected = outcomes(session_of(ort_sdk, model))
    for own, other in zip(found, expected, strict=True):
        if isinstance(other, type):
            assert own is other
        else:
            for mine, wanted in zip(own, other, strict=True):
                np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("row", [ROWS, -1, 1 << 40])
def test_rows_that_do_not_exist_are_left_to_the_shared_set(python_calls, row):
    model = group_model(group_feeds(0, more=("ids",)))
    session = compare(model, lambda run: run_feeds(group_feeds(run, more=("ids",))), python_calls)
    before = len(python_calls)
    feeds = run_feeds(group_feeds(5, more=("ids",)))
    if row == -1:
        session.run(None, feeds | {"ids": np.array([[row]])})
    else:
        with pytest.raises(ort_sdk.api.OrtSdkError):
            session.run(None, feeds | {"ids": np.array([[row]])})
    assert len(python_calls) > before
    expected = session_of(onnxruntime, model).run(None, feeds)
    for own, other in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("shared", [("key", "value"), ("key",), ("value",)], ids=str)
@pytest.mark.parametrize("length", [1, 20])
def test_a_shared_buffer_is_filled(python_calls, shared, length):
    longest, settings = 120, {"length": length, "rows": 120, "longest": 120}
    model = group_model(group_feeds(0, past=0, **settings))
    ours, theirs = session_of(ort_sdk, model), session_of(onnxruntime, model)
    caches = {name: random(1, KEY_HEADS, longest, SIZE, seed=len(name)) for name in ("past_key", "past_value")}
    values = {name: ort_sdk.OrtValue.ortvalue_from_numpy(cache.copy()) for name, cache in caches.items()}
    for run in range(6):
        past, before = 7 * run, len(python_calls)
        feeds = run_feeds(group_feeds(run, past=past, **settings)) | caches
        y, *presents = theirs.run(None, feeds)
        binding = ours.io_binding()
        for name, array in feeds.items():
            if name in values:
                binding.bind_ortvalue_input(name, values[name])
            else:
                binding.bind_cpu_input(name, array)
        binding.bind_output("y")
        for kind in ("key", "value"):
            if kind in shared:
                binding.bind_ortvalue_output(f"present_{kind}", values[f"past_{kind}"])
            else:
                binding.bind_output(f"present_{kind}")
        ours.run_with_iobinding(binding)
        assert run < RUNS_BEFORE_BINDING or len(python_calls) == before
        np.testing.assert_allclose(binding.get_outputs()[0].numpy(), y, rtol=2e-5, atol=3e-6)
        for place, (name, present) in enumerate(zip(caches, presents, strict=True)):
            tokens = slice(past + length)
            found = binding.get_outputs()[1 + place].numpy()
            np.testing.assert_allclose(found[:, :, tokens], present[:, :, tokens], rtol=2e-5, atol=3e-6)
            kept, wanted = values[name].numpy(), present if name[5:] in shared else caches[name]
            np.testing.assert_allclose(kept[:, :, tokens], wanted[:, :, tokens], rtol=2e-5, atol=3e-6)
            caches[name] = kept.copy()


HEAD_INPUTS = ("query", "key", "value", "bias", "mask", "attention_bias", "past_key", "past_value")


def head_feeds(run, *, length=1, past=70, batch=2, more=(), four=0):
    width, keys = HEADS * SIZE, past + length
    feeds = {"query": random(batch, length, width, seed=run)}
    shape = (batch, HEADS, four, SIZE) if four else (batch, length, width)
    feeds |= {name: random(*shape, seed=run + len(name)) for name in ("key", "value")}
    if past:
        feeds |= {name: random(batch, HEADS, past, SIZE, seed=run + 20 + len(name)) for name in ("past_key", "past_value")}
    if "bias" in more:
        feeds["bias"] = random(3 * width, seed=9)
    if "mask" in more:
        feeds["mask"] = (np.random.default_rng(run).random((batch, keys)) > 0.3 * (run % 2)).astype(np.int32)
    if "ends" in more:
        feeds["mask"] = np.random.default_rng(run).integers(1, keys + 1, batch).astype(np.int32)
    if "attention_bias" in more:
        feeds["attention_bias"] = random(1, HEADS, length, keys, seed=run + 30)
    return feeds


def head_model(feeds, outputs=("y", "present_key", "present_value"), **attributes):
    names = [name if name in feeds else "" for name in HEAD_INPUTS]
    while not names[-1]:
        names.pop()
    node = helper.make_node("MultiHeadAttention", names, outputs, domain=MICROSOFT, num_heads=HEADS, **attributes)
    return model_of(node, feeds, outputs, [name for name in ("bias",) if name in feeds])


@pytest.mark.parametrize("attributes", [{}, {"unidirectional": 1}], ids=str)
@pytest.mark.parametrize("more", [(), ("bias",), ("mask",), ("attention_bias",), ("bias", "mask")], ids=str)
@pytest.mark.parametrize(("length", "past"), [(1, 0), (1, 16), (1, 250), (20, 70)])
def test_multi_head_attention(python_calls, length, past, more, attributes):
    settings = {"length": length, "past": past, "more": more}
    is_left = length > 1 and "mask" in more and bool(attributes)
    model = head_model(head_feeds(0, **settings), **attributes)

    def feeds(run):
        return {name: array for name, array in head_feeds(run, **settings).items() if name != "bias"}

    compare(model, feeds, python_calls, is_bound=not is_left)


@pytest.mark.parametrize("more", [("ends",), ("mask", "attention_bias")], ids=str)
def test_masks_that_no_task_makes_numbers_of(python_calls, more):
    compare(head_model(head_feeds(0, more=more)), lambda run: head_feeds(run, more=more), python_calls, is_bound=False)


@pytest.mark.parametrize("four", [100, 600])
def test_keys_of_an_encoder(python_calls, four):
    settings = {"past": 0, "four": four, "batch": 1}
    compare(head_model(head_feeds(0, **settings), outputs=("y",)), lambda run: head_feeds(run, **settings), python_calls)


def standard_feeds(run, *, length, past, mask):
    feeds = {"query": random(1, HEADS, length, SIZE, seed=run)}
    feeds |= {name: random(1, KEY_HEADS, length, SIZE, seed=run + len(name)) for name in ("key", "value")}
    if mask == "numbers":
        feeds["mask"] = random(1, 1, length, past + length, seed=run + 5)
    if past:
        feeds |= {name: random(1, KEY_HEADS, past, SIZE, seed=run + 20 + len(name)) for name in ("past_key", "past_value")}
    return feeds


@pytest.mark.parametrize("mask", ["none", "numbers"])
@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"softcap": 3.0}, {"scale": 0.2}], ids=str)
@pytest.mark.parametrize(("length", "past"), [(1, 16), (1, 250), (20, 70)])
def test_attention(python_calls, length, past, attributes, mask):
    settings = {"length": length, "past": past, "mask": mask}
    feeds, outputs = standard_feeds(0, **settings), ("y", "present_key", "present_value")
    names = [name if name in feeds else "" for name in ("query", "key", "value", "mask", "past_key", "past_value")]
    model = model_of(helper.make_node("Attention", names, outputs, **attributes), feeds, outputs)
    compare(model, lambda run: standard_feeds(run, **settings), python_calls)


def test_a_result_that_is_kept_stays_as_it_is():
    model = group_model(group_feeds(0, past=200))
    session = session_of(ort_sdk, model)
    feeds = [run_feeds(group_feeds(run, past=200)) for run in range(12)]
    results = [session.run(None, each) for each in feeds]
    for each, kept in zip(feeds, results, strict=True):
        for own, again in zip(kept, session.run(None, each), strict=True):
            np.testing.assert_array_equal(own, again)


def test_a_loop_feeds_back_what_the_last_run_made():
    longest, model = 60, None
    feeds = group_feeds(0, past=0, rows=longest, longest=longest)
    model = onnx.load_from_string(group_model(feeds))
    ours, theirs = (session_of(library, model.SerializeToString()) for library in (ort_sdk, onnxruntime))
    states = {session: run_feeds(feeds) for session in (ours, theirs)}
    for step in range(40):
        results = []
        for session, state in states.items():
            state.update(run_feeds(group_feeds(step, past=step, rows=0, longest=longest)))
            y, state["past_key"], state["past_value"] = session.run(None, state)
            results.append(y)
        np.testing.assert_allclose(*results, rtol=2e-5, atol=3e-6)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1, 128), (2, 5, 128), (2, 4, 5, 32), (1, 200, 128)], ids=str)
@pytest.mark.parametrize("positions", ["tokens", "first", "standard", "own"])
def test_rotary_embedding(python_calls, monkeypatch, positions, shape, interleaved):
    monkeypatch.setattr(rotary._Node, "call", lambda *args, made=rotary._Node.call: python_calls.append(1) or made(*args))
    tokens, pairs = (shape[0], shape[2 if len(shape) == 4 else 1]), 16

    def feeds(run):
        made = {"x": random(*shape, seed=run)}
        if positions != "own":
            drawn = np.random.default_rng(run)
            made["ids"] = np.array([run], np.int64) if positions == "first" else drawn.integers(0, ROWS, tokens)
        caches = (*tokens, pairs) if positions == "own" else (ROWS, pairs)
        return made | {name: random(*caches, seed=run + len(name) + place) for place, name in enumerate(("cos", "sin"))}

    is_standard = positions in {"standard", "own"}
    names = ["x", "cos", "sin", "ids"][: 3 if positions == "own" else 4] if is_standard else ["x", "ids", "cos", "sin"]
    more = {"num_heads": HEADS} if is_standard and len(shape) == 3 else {}
    domain = "" if is_standard else MICROSOFT
    model = model_of(
        helper.make_node("RotaryEmbedding", names, ["y"], domain=domain, interleaved=interleaved, **more), feeds(0), ["y"]
    )
    compare(model, feeds, python_calls)


@pytest.mark.parametrize("first", [ROWS - 4, -1])
def test_positions_without_a_row(python_calls, first):
    feeds = {"x": random(1, 5, 128), "ids": np.array([3]), "cos": random(ROWS, 16, seed=1), "sin": random(ROWS, 16, seed=2)}
    node = helper.make_node("RotaryEmbedding", ["x", "ids", "cos", "sin"], ["y"], domain=MICROSOFT)
    session = compare(model_of(node, feeds, ["y"]), lambda run: feeds, python_calls)
    expected = session.run(None, feeds)[0]
    try:
        session.run(None, feeds | {"ids": np.array([first])})
    except ort_sdk.api.OrtSdkError:
        assert first > 0
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
