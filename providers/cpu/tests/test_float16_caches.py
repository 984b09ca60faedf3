"""GroupQueryAttention with a cache of float16, and with normalised heads, beside float64."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.attention import decode
from ort_sdk_cpu.attention.select import MOST_DECODE_QUERIES
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

import ort_sdk

pytestmark = pytest.mark.skipif(
    not libraries.compiled_kernels().is_usable or instruction_set() < InstructionSet.AVX2, reason="no tasks for float16 here"
)

MICROSOFT = "com.microsoft"
ROWS = 300
HALF_UNIT, UNIT = 2.0**-11, 2.0**-24
NAMES = ("query", "key", "value", "past_key", "past_value", "seqlens_k", "total_sequence_length", "cos", "sin")
MORE = ("position_ids", "attention_bias", "head_sink", "k_scale", "v_scale", "q_norm", "k_norm")


class Case:
    """A node, its inputs, and what float64 makes of them."""

    def __init__(self, heads=4, key_heads=2, size=32, rotary=32, norms=False, dtype=np.float16, cache=np.float16, **attributes):
        self.heads, self.key_heads, self.size, self.rotary = heads, key_heads, size, rotary
        self.dtype, self.cache_type, self.attributes = dtype, cache, attributes
        self.rng = np.random.default_rng(3)
        self.constants = {}
        if rotary:
            angles = np.outer(np.arange(ROWS), 1 / 100 ** (np.arange(rotary // 2) / rotary))
            self.constants |= {"cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}
        if norms:
            self.constants |= {name: self.rng.uniform(0.5, 1.5, size).astype(dtype) for name in ("q_norm", "k_norm")}

    def cache(self, batch, rows):
        return [self.rng.standard_normal((batch, self.key_heads, rows, self.size)).astype(self.cache_type) for _ in range(2)]

    def tokens(self, batch, length):
        widths = {"query": self.heads, "key": self.key_heads, "value": self.key_heads}
        return {
            name: self.rng.standard_normal((batch, length, width * self.size)).astype(self.dtype)
            for name, width in widths.items()
        }

    def model(self, *, has_past=True):
        names = [
            name if name in {*NAMES[:7], *self.constants} and (has_past or not name.startswith("past")) else ""
            for name in (*NAMES, *MORE)
        ]
        while not names[-1]:
            names.pop()
        more = {"num_heads": self.heads, "kv_num_heads": self.key_heads, "do_rotary": int(self.rotary > 0)} | self.attributes
        outputs = ["y", "present_key", "present_value"]
        node = helper.make_node("GroupQueryAttention", names, outputs, domain=MICROSOFT, **more)
        of = helper.np_dtype_to_tensor_dtype
        given = [helper.make_tensor_value_info(name, of(np.dtype(self.dtype)), ["b", "s", None]) for name in NAMES[:3]]
        caches = NAMES[3:5] if has_past else ()
        shape = ["b", self.key_heads, None, self.size]
        given += [helper.make_tensor_value_info(name, of(np.dtype(self.cache_type)), shape) for name in caches]
        given += [helper.make_tensor_value_info("seqlens_k", TensorProto.INT32, ["b"])]
        given += [helper.make_tensor_value_info("total_sequence_length", TensorProto.INT32, [1])]
        types = (self.dtype, self.cache_type, self.cache_type)
        made = [helper.make_tensor_value_info(name, of(np.dtype(kind)), None) for name, kind in zip(outputs, types, strict=True)]
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph([node], "attention", given, made, constants)
        domains = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=10).SerializeToString()

    def session(self, *, has_past=True, threads=2):
        options = ort_sdk.SessionOptions()
        options.intra_op_num_threads = threads
        return ort_sdk.InferenceSession(self.model(has_past=has_past), options, providers=["CPUExecutionProvider"])

    def rotated(self, heads, starts, weight):
        """(batch, tokens, heads, size) normalised and rotated, in float64."""
        x = heads.astype(np.float64)
        if weight is not None:
            x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight.astype(np.float64)
        if not self.rotary:
            return x
        rows = np.asarray(starts)[:, None] + np.arange(x.shape[1])
        cos, sin = (self.constants[name].astype(np.float64)[rows][:, :, None] for name in ("cos", "sin"))
        half = self.rotary // 2
        first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], -1)

    def check(self, results, tokens, past, starts):
        """Caches hold the past and the new rows; what is attended is what float64 attends of these caches."""
        y, keys, values = results
        length = tokens["query"].shape[1]
        q, k, v = (tokens[name].reshape(len(starts), length, -1, self.size) for name in ("query", "key", "value"))
        new = self.rotated(k, starts, self.constants.get("k_norm"))
        unit = HALF_UNIT if self.cache_type == np.float16 else 16 * UNIT
        for index, start in enumerate(starts):
            for own, old, added in ((keys, past[0], new), (values, past[1], v.astype(np.float64))):
                np.testing.assert_array_equal(own[index, :, :start], old[index, :, :start])
                wanted = added[index].swapaxes(0, 1)
                bound = 1.01 * unit * np.abs(wanted) + 16 * UNIT * np.abs(added).max()
                assert np.all(np.abs(own[index, :, start : start + length] - wanted) <= bound)
            queries = self.rotated(q, starts, self.constants.get("q_norm"))[index].swapaxes(0, 1)
            attended = self.attended(queries, keys[index], values[index], start)
            scale = np.abs(values[index, :, : start + length].astype(np.float64)).max()
            tolerance = 64 * UNIT * (self.size + start + length) * scale
            tolerance = tolerance + (HALF_UNIT * np.abs(attended) if self.dtype == np.float16 else 0)
            if self.cache_type == np.float16 and self.attends_before_rounding(length):
                tolerance = tolerance + self.rounding(queries, keys[index], start) * scale
            assert np.all(np.abs(y[index].astype(np.float64) - attended) <= tolerance)

    def attends_before_rounding(self, length):
        """Whether so many queries attend the new keys and values as they were before they came into the cache."""
        return self.heads // self.key_heads * length > MOST_DECODE_QUERIES or self.size % 16 != 0

    def rounding(self, queries, keys, start):
        """What float16 keys and values can change in averages of values, over the largest: their weights, and themselves."""
        group, length = self.heads // self.key_heads, queries.shape[1]
        known = np.abs(np.repeat(keys[:, : start + length].astype(np.float64), group, 0))
        scores = (np.abs(queries) @ known.swapaxes(1, 2)).max() * self.attributes.get("scale", self.size**-0.5)
        return 2 * np.expm1(HALF_UNIT * scores) + HALF_UNIT

    def attended(self, queries, keys, values, start):
        group, length = self.heads // self.key_heads, queries.shape[1]
        found = np.empty((length, self.heads, self.size))
        for head in range(self.heads):
            k, v = (cache[head // group, : start + length].astype(np.float64) for cache in (keys, values))
            scores = queries[head] @ k.T * self.attributes.get("scale", self.size**-0.5)
            cap = self.attributes.get("softcap", 0.0)
            scores = np.tanh(scores / cap) * cap if cap else scores
            distance = start + np.arange(length)[:, None] - np.arange(start + length)
            window = self.attributes.get("local_window_size", -1)
            scores[(distance < 0) | ((distance >= window) if window >= 0 else False)] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            found[:, head] = weights / weights.sum(-1, keepdims=True) @ v
        return found.reshape(length, -1)

    def feeds(self, tokens, past, starts):
        length = tokens["query"].shape[1]
        totals = np.array(starts, np.int32) + length
        given = {} if past is None else dict(zip(NAMES[3:5], past, strict=True))
        return tokens | given | {"seqlens_k": totals - 1, "total_sequence_length": np.array([totals.max()], np.int32)}


@pytest.fixture
def launched(monkeypatch):
    """Names of the tasks that attention is launched with."""
    names = []
    run = decode.Launch.run
    monkeypatch.setattr(decode.Launch, "run", lambda launch: names.append(launch.name) or run(launch))
    return names


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize(("length", "past"), [(1, 70), (1, 150), (3, 20), (40, 0), (5, 130), (33, 64)])
@pytest.mark.parametrize("attributes", [{}, {"softcap": 2.0}, {"local_window_size": 16}, {"scale": 0.3}], ids=str)
def test_a_cache_of_float16(launched, dtype, length, past, attributes):
    case = Case(dtype=dtype, **attributes)
    tokens, cache = case.tokens(2, length), case.cache(2, past)
    session = case.session()
    for _ in range(3):
        case.check(session.run(None, case.feeds(tokens, cache, [past, past])), tokens, cache, [past, past])
    assert set(launched) <= ({"decode_attention_f16"} if length < 8 else {"append_to_cache", "flash_attention"})


@pytest.mark.parametrize(("size", "heads", "key_heads"), [(16, 2, 2), (64, 9, 3), (128, 16, 1), (20, 4, 2), (256, 4, 1)])
@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("cache", [np.float16, np.float32])
def test_heads_of_any_size_with_normalization(size, heads, key_heads, length, cache):
    case = Case(heads, key_heads, size, rotary=size, norms=True, dtype=np.float32, cache=cache)
    tokens, past = case.tokens(1, length), case.cache(1, 37)
    case.check(case.session().run(None, case.feeds(tokens, past, [37])), tokens, past, [37])


@pytest.mark.parametrize("length", [1, 20])
def test_sequences_of_several_lengths(length):
    case, starts = Case(), [5, 70, 31]
    tokens, past = case.tokens(3, length), case.cache(3, 160)
    results = case.session().run(None, case.feeds(tokens, past, starts))
    case.check(results, tokens, past, starts)
    for own, old in zip(results[1:], past, strict=True):
        assert own.shape == old.shape
        for index, start in enumerate(starts):
            np.testing.assert_array_equal(own[index, :, start + length :], old[index, :, start + length :])


@pytest.mark.parametrize("length", [1, 30])
def test_a_prompt_without_a_past(length):
    case = Case()
    tokens = case.tokens(1, length)
    results = case.session(has_past=False).run(None, case.feeds(tokens, None, [0]))
    case.check(results, tokens, case.cache(1, 0), [0])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("norms", [False, True])
def test_a_shared_buffer_is_filled_in_place(launched, threads, norms):
    case = Case(norms=norms)
    session = case.session(threads=threads)
    buffers = case.cache(1, 80)
    given = [buffer.copy() for buffer in buffers]
    values = [ort_sdk.OrtValue.ortvalue_from_numpy(buffer) for buffer in buffers]
    start = 0
    for length in [30, *[1] * 20, 20, *[1] * 4]:
        tokens = case.tokens(1, length)
        binding = session.io_binding()
        for name, array in case.feeds(tokens, None, [start]).items():
            binding.bind_cpu_input(name, array)
        for kind, value in zip(("key", "value"), values, strict=True):
            binding.bind_ortvalue_input(f"past_{kind}", value)
            binding.bind_ortvalue_output(f"present_{kind}", value)
        binding.bind_output("y")
        before = [value.numpy().copy() for value in values]
        session.run_with_iobinding(binding)
        present = [value.numpy() for value in values]
        (y,) = (output.numpy() for output in binding.get_outputs() if output.numpy().ndim == 3)
        case.check([y, *present], tokens, before, [start])
        start += length
        for own, old in zip(present, given, strict=True):
            np.testing.assert_array_equal(own[:, :, start:], old[:, :, start:])
    assert "decode_attention_f16" in launched


def test_a_growing_cache_is_kept_by_the_caller():
    case = Case(heads=6, key_heads=3, size=16, rotary=16)
    session, past, start, kept = case.session(), case.cache(1, 0), 0, []
    for length in [9, *[1] * 90]:
        tokens = case.tokens(1, length)
        results = session.run(None, case.feeds(tokens, past, [start]))
        case.check(results, tokens, past, [start])
        start += length
        past = results[1:]
        kept.append((past, [array.copy() for array in past]))
    for arrays, copies in kept:
        for array, copy in zip(arrays, copies, strict=True):
            np.testing.assert_array_equal(array, copy)


ATTENTION_NAMES = ("Q", "K", "V", "attn_mask", "past_key", "past_value")


def attention_session(case, feeds, **attributes):
    of = helper.np_dtype_to_tensor_dtype
    names = [name if name in feeds else "" for name in ATTENTION_NAMES]
    outputs = ["y", "present_key", "present_value"]
    more = {"q_num_heads": case.heads, "kv_num_heads": case.key_heads, "is_causal": 1} | attributes
    node = helper.make_node("Attention", names, outputs, **more)
    given = [helper.make_tensor_value_info(name, of(array.dtype), [None] * array.ndim) for name, array in feeds.items()]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, None) for name in outputs]
    graph = helper.make_graph([node], "attention", given, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    return ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(("size", "length"), [(32, 1), (32, 3), (32, 40), (20, 1), (64, 1)])
@pytest.mark.parametrize("is_masked", [False, True])
def test_attention_of_onnx_over_a_cache_of_float16(launched, size, length, is_masked):
    case = Case(size=size, rotary=0)
    case.heads, case.key_heads = 4, 2
    past = case.cache(2, 30)
    tokens = case.tokens(2, length)
    feeds = dict(zip(ATTENTION_NAMES[:3], tokens.values(), strict=True)) | dict(zip(ATTENTION_NAMES[4:], past, strict=True))
    if is_masked:
        feeds["attn_mask"] = np.ones((length, 30 + length), np.bool_)
    session = attention_session(case, feeds)
    for _ in range(6):
        start = past[0].shape[2]
        results = session.run(None, feeds)
        case.check(results, tokens, past, [start, start])
        assert [value.dtype for value in results] == [np.float16] * 3
        past, tokens = results[1:], case.tokens(2, length)
        feeds |= dict(zip(ATTENTION_NAMES[:3], tokens.values(), strict=True)) | dict(zip(ATTENTION_NAMES[4:], past, strict=True))
        if is_masked:
            feeds["attn_mask"] = np.ones((length, past[0].shape[2] + length), np.bool_)
    fed = {feed.index for feed in session._state.plan.feeds}
    (node,) = [step for step in session._state.plan.steps if step.op_type == "Attention"]
    assert {node.inputs[4], node.inputs[5]} <= fed
    assert ("decode_attention_f16" in launched) == (length < 8 and size % 16 == 0)


def test_caches_pass_by_the_casts_around_a_node():
    """All else is float; the caches, as long as a text, are not made so."""
    steps = Case().session()._state.plan.steps
    (node,) = [step for step in steps if step.op_type == "GroupQueryAttention"]
    fed = {feed.index for feed in Case().session()._state.plan.feeds}
    assert {node.inputs[3], node.inputs[4]} <= fed


@pytest.mark.parametrize("norms", [False, True])
def test_a_length_that_stays_is_bound(norms):
    """With the longest sequence known, the node is a call of a program."""
    case = Case(norms=norms)
    longest = np.array([64], np.int32)
    model = case.model()
    proto = onnx.load_from_string(model)
    given = [value for value in proto.graph.input if value.name != "total_sequence_length"]
    del proto.graph.input[:]
    proto.graph.input.extend(given)
    proto.graph.initializer.append(numpy_helper.from_array(longest, "total_sequence_length"))
    session = ort_sdk.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    past = case.cache(1, 64)
    for start in range(20, 40):
        tokens = case.tokens(1, 1)
        feeds = case.feeds(tokens, past, [start])
        del feeds["total_sequence_length"]
        case.check(session.run(None, feeds), tokens, past, [start])
    assert session.program_report()
