"""com.microsoft attention operators against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from ort_sdk.api import InvalidArgument
from tests.opset.one_node import assert_same, compare, make_model, run_reference, run_sdk

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(13)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def mask_of(kind, batch, length, keys):
    matrix = (RNG.random((batch, length, keys)) > 0.3).astype(np.int32)
    # Where all keys are hidden, the weights are those of scores rounded beside the filter value: what rounds them decides.
    matrix[:, :, 0] = 1
    return {
        "none": None,
        "ends": np.array([keys, keys - 1], np.int32)[:batch],
        "raw": (RNG.random((batch, keys)) > 0.3).astype(np.int32),
        "matrix": matrix,
    }[kind]


@pytest.mark.parametrize("mask", ["none", "ends", "raw", "matrix"])
@pytest.mark.parametrize("past", [0, 3])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask, past, causal):
    x, weights, bias = floats(2, 4, 8), floats(8, 36), floats(36)
    past_state = floats(2, 2, 3, past, 4) if past else None
    inputs = [x, weights, bias, mask_of(mask, 2, 4, 4 + past), past_state]
    attributes = {"num_heads": 3, "unidirectional": causal}
    compare("Attention", inputs, 2, domain=MICROSOFT, attributes=attributes, atol=1e-4)


@pytest.mark.parametrize(
    "mask",
    [[4, 3, 1, 0], [4, 3, 0, 4, 7, 0, 4, 7], [[1], [1]], [[1]], [[0, 0, 0, 0], [0, 0, 0, 0]]],
    ids=["ends and starts", "cumulated", "dummy", "dummy of one", "all hidden"],
)
def test_attention_with_odd_masks(mask):
    inputs = [floats(2, 4, 8), floats(8, 24), floats(24), np.array(mask, np.int32)]
    compare("Attention", inputs, domain=MICROSOFT, attributes={"num_heads": 2, "unidirectional": 1}, atol=1e-4)
    compare("Attention", inputs, domain=MICROSOFT, attributes={"num_heads": 2, "mask_filter_value": -2.0}, atol=1e-4)


def test_attention_refuses_a_mask_of_another_shape():
    inputs = [floats(2, 4, 8), floats(8, 24), floats(24), np.ones((2, 3), np.int32)]
    model = make_model("Attention", inputs, domain=MICROSOFT, attributes={"num_heads": 2}, output_types=[1])
    with pytest.raises(InvalidArgument, match=r"attention mask has shape \(2, 3\)"):
        run_sdk(*model)


def test_attention_with_bias_and_value_width():
    inputs = [floats(2, 4, 8), floats(8, 8 + 8 + 12), floats(28), None, None, floats(1, 2, 4, 4)]
    attributes = {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12], "scale": 0.3}
    compare("Attention", inputs, domain=MICROSOFT, attributes=attributes, atol=1e-4)


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("past", [0, 3])
def test_qattention(per_column, past):
    weight_scale = RNG.uniform(0.01, 0.02, 24).astype(np.float32) if per_column else np.array(0.01, np.float32)
    inputs = [
        RNG.integers(0, 256, (2, 4, 8)).astype(np.uint8),
        RNG.integers(-128, 128, (8, 24)).astype(np.int8),
        floats(24),
        np.array(0.02, np.float32),
        weight_scale,
        np.array([4 + past, 3 + past], np.int32),
        np.array(128, np.uint8),
        np.zeros(24, np.int8) if per_column else np.array(0, np.int8),
        floats(2, 2, 2, past, 4) if past else None,
    ]
    attributes = {"num_heads": 2, "unidirectional": 1}
    compare("QAttention", inputs, 2 if past else 1, domain=MICROSOFT, attributes=attributes, constants=(1, 4, 7), atol=1e-4)


@pytest.mark.parametrize("mask", ["none", "ends", "raw", "matrix"])
@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("with_bias", [False, True])
def test_multi_head_attention(mask, causal, with_bias):
    inputs = [floats(2, 4, 12), floats(2, 4, 12), floats(2, 4, 18), floats(42) if with_bias else None]
    inputs += [mask_of(mask, 2, 4, 4), floats(2, 3, 4, 4)]
    attributes = {"num_heads": 3, "unidirectional": causal}
    compare("MultiHeadAttention", inputs, domain=MICROSOFT, attributes=attributes, atol=1e-4)


def test_multi_head_attention_with_past():
    inputs = [floats(2, 1, 12), floats(2, 1, 12), floats(2, 1, 12), None, None, None, floats(2, 3, 5, 4), floats(2, 3, 5, 4)]
    compare("MultiHeadAttention", inputs, 3, domain=MICROSOFT, attributes={"num_heads": 3, "scale": 0.4}, atol=1e-4)


@pytest.mark.parametrize("hidden", [0, 2])
@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_with_past_and_mask(hidden, causal):
    mask = np.ones((2, 6), np.int32)
    mask[0, :hidden] = 0
    inputs = [floats(2, 1, 48), floats(2, 1, 48), floats(2, 1, 48), None, mask, None, floats(2, 3, 5, 16), floats(2, 3, 5, 16)]
    compare("MultiHeadAttention", inputs, 3, domain=MICROSOFT, attributes={"num_heads": 3, "unidirectional": causal}, atol=1e-4)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("length", "keys"), [(4, 6), (1, 200), (3, 200), (70, 100)])
def test_multi_head_cross_attention(length, keys, with_bias):
    inputs = [floats(2, length, 48), floats(2, 3, keys, 16), floats(2, 3, keys, 16), floats(144) if with_bias else None]
    compare("MultiHeadAttention", inputs, domain=MICROSOFT, attributes={"num_heads": 3}, atol=1e-4)


@pytest.mark.parametrize(("batch", "length", "keys"), [(0, 3, 3), (1, 0, 3), (1, 3, 0), (2, 0, 0)])
def test_multi_head_attention_of_nothing(batch, length, keys):
    inputs = [floats(batch, length, 12), floats(batch, keys, 12), floats(batch, keys, 18)]
    compare("MultiHeadAttention", inputs, domain=MICROSOFT, attributes={"num_heads": 3})


def test_packed_queries_keys_and_values():
    q, k, v = floats(2, 4, 12), floats(2, 4, 12), floats(2, 4, 12)
    packed = np.stack([part.reshape(2, 4, 3, 4) for part in (q, k, v)], axis=3)
    attributes = {"num_heads": 3}
    arguments = {"domain": MICROSOFT, "attributes": attributes, "output_types": [1]}
    (expected,) = run_sdk(*make_model("MultiHeadAttention", [q, k, v], **arguments))
    (got,) = run_sdk(*make_model("MultiHeadAttention", [packed], **arguments))
    assert_same(got, expected, 1e-5, 1e-6)
    (got,) = run_sdk(*make_model("MultiHeadAttention", [q, packed[:, :, :, 1:]], **arguments))
    assert_same(got, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(2, 5, 24), (2, 3, 5, 8)])
@pytest.mark.parametrize("rotary_width", [0, 4])
@pytest.mark.parametrize("offset", [False, True])
def test_rotary_embedding(interleaved, shape, rotary_width, offset):
    cache = floats(20, (rotary_width or 8) // 2), floats(20, (rotary_width or 8) // 2)
    positions = np.array([3], np.int64) if offset else RNG.integers(0, 20, (2, 5)).astype(np.int64)
    attributes = {"interleaved": interleaved}
    if rotary_width:
        attributes |= {"rotary_embedding_dim": rotary_width, "num_heads": 3}
    compare("RotaryEmbedding", [floats(*shape), positions, *cache], domain=MICROSOFT, attributes=attributes)


GROUP_QUERY = {"num_heads": 4, "kv_num_heads": 2}


def group_query_inputs(new, past, capacity=None, batch=2, packed=False, rotary=False):
    capacity = past if capacity is None else capacity
    parts = [floats(batch, new, 64), floats(batch, new, 32), floats(batch, new, 32)]
    inputs = [np.concatenate(parts, axis=-1), None, None] if packed else parts
    inputs += [floats(batch, 2, capacity, 16), floats(batch, 2, capacity, 16)]
    total = new + past
    inputs += [np.full(batch, total - 1, np.int32), np.array(total, np.int32)]
    return inputs + ([floats(40, 8), floats(40, 8)] if rotary else [None, None])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize(("new", "past"), [(5, 0), (1, 6), (3, 6)])
@pytest.mark.parametrize(
    "attributes",
    [{}, {"scale": 0.2, "softcap": 3.0}, {"local_window_size": 3}, {"rotary_interleaved": 1}, {"smooth_softmax": 1}],
)
def test_group_query_attention(packed, rotary, new, past, attributes):
    inputs = group_query_inputs(new, past, batch=1 if new > 1 and past else 2, packed=packed, rotary=rotary)
    attributes = {**GROUP_QUERY, **attributes, "do_rotary": int(rotary)}
    compare("GroupQueryAttention", inputs, 3, domain=MICROSOFT, attributes=attributes, atol=1e-4)


def test_group_query_attention_of_unequal_sequences():
    inputs = group_query_inputs(1, 6, capacity=9, rotary=True)
    inputs[5] = np.array([6, 3], np.int32)
    model, feeds = make_model(
        "GroupQueryAttention", inputs, 3, domain=MICROSOFT, attributes={**GROUP_QUERY, "do_rotary": 1}, output_types=[1, 1, 1]
    )
    expected, got = run_reference(model, feeds), run_sdk(model, feeds)
    assert_same(got[0], expected[0], 1e-4, 1e-4)
    for cache, wanted in zip(got[1:], expected[1:], strict=True):
        for index, total in enumerate([7, 4]):
            assert_same(cache[index, :, :total], wanted[index, :, :total], 1e-5, 1e-5)


def test_group_query_attention_with_bias_positions_and_sink():
    inputs = group_query_inputs(4, 0, rotary=True, batch=1)
    inputs += [np.arange(4, dtype=np.int64)[None] + 2, floats(1, 4, 4, 4), floats(4)]
    attributes = {**GROUP_QUERY, "do_rotary": 1}
    compare("GroupQueryAttention", inputs, 3, domain=MICROSOFT, attributes=attributes, atol=1e-4)


def cached(capacity=9, past=5, batch=4):
    parts = [floats(batch, 1, 12) for _ in range(3)]
    return parts, [floats(batch, 3, capacity, 4), floats(batch, 3, capacity, 4), np.array([past], np.int32)]


def beams():
    return RNG.integers(0, 2, (2, 2, 9)).astype(np.int32)


@pytest.mark.parametrize("with_beams", [False, True])
def test_multi_head_attention_with_a_shared_cache(with_beams):
    parts, cache = cached()
    inputs = [*parts, None, None, None, *cache, beams() if with_beams else None]
    compare("MultiHeadAttention", inputs, 3, domain=MICROSOFT, attributes={"num_heads": 3}, atol=1e-4)


@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention_gives_scores(causal):
    inputs = [floats(2, 4, 12), floats(2, 4, 12), floats(2, 4, 12)]
    attributes = {"num_heads": 3, "unidirectional": causal}
    model, feeds = make_model("MultiHeadAttention", inputs, 4, domain=MICROSOFT, attributes=attributes, output_types=[1] * 4)
    for got, expected in zip(run_sdk(model, feeds), run_reference(model, feeds), strict=True):
        assert_same(got, expected, 1e-4, 1e-4)


@pytest.mark.parametrize("with_beams", [False, True])
@pytest.mark.parametrize("with_masks", [False, True])
def test_decoder_masked_self_attention(with_beams, with_masks):
    parts, cache = cached()
    masks = [mask_of("raw", 4, 1, 6), floats(1, 3, 1, 6)] if with_masks else [None, None]
    inputs = [*parts, *masks, *cache, None, None, floats(36) if with_masks else None]
    if with_beams:
        inputs[8:10] = [np.array([2], np.int32), beams()]
    attributes = {"num_heads": 3, "past_present_share_buffer": 1}
    compare("DecoderMaskedMultiHeadAttention", inputs, 3, domain=MICROSOFT, attributes=attributes, atol=1e-4)


def test_decoder_masked_cross_attention():
    inputs = [floats(4, 1, 12), floats(4, 3, 6, 4), floats(4, 3, 6, 4)]
    compare("DecoderMaskedMultiHeadAttention", inputs, domain=MICROSOFT, attributes={"num_heads": 3}, atol=1e-4)


@pytest.mark.parametrize("stage", [1, 2])
def test_group_query_attention_gives_scores_or_weights(stage):
    inputs = [*group_query_inputs(4, 0, batch=1), None, None, None, None][:9]
    attributes = {**GROUP_QUERY, "qk_output": stage}
    compare("GroupQueryAttention", inputs, 4, domain=MICROSOFT, attributes=attributes, atol=1e-4)


def test_bidirectional_group_query_attention():
    inputs = group_query_inputs(5, 0, batch=2)
    compare("GroupQueryAttention", inputs, 3, domain=MICROSOFT, attributes={**GROUP_QUERY, "causal": 0}, atol=1e-4)


def test_group_query_attention_of_half_precision():
    inputs = [
        value.astype(np.float16) if value is not None and value.dtype == np.float32 else value
        for value in group_query_inputs(1, 6)
    ]
    compare("GroupQueryAttention", inputs, 3, domain=MICROSOFT, attributes=GROUP_QUERY, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("dtype", "bits"), [(np.int8, 8), (np.uint8, 4)])
@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize(("new", "past"), [(4, 0), (1, 5)])
def test_group_query_attention_with_a_quantized_cache(dtype, bits, kind, new, past):
    limits, size = np.iinfo(dtype), 16 * bits // 8
    inputs = [*group_query_inputs(new, past, batch=1), None, None, None]
    inputs[3:5] = [RNG.integers(limits.min, limits.max + 1, (1, 2, past, size)).astype(dtype) for _ in range(2)]
    shape = (1,) if kind == "PER_TENSOR" else (32,)
    inputs += [RNG.uniform(0.05, 0.2, shape).astype(np.float32) for _ in range(2)]
    attributes = {**GROUP_QUERY, "k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits}
    compare("GroupQueryAttention", inputs, 3, domain=MICROSOFT, attributes=attributes, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("capacity", "window"), [(8, 6), (6, 6), (8, 1)])
def test_group_query_attention_with_a_window_cache(capacity, window):
    keys, values, total = np.zeros((1, 2, capacity, 16), np.float32), np.zeros((1, 2, capacity, 16), np.float32), 0
    attributes = {**GROUP_QUERY, "local_window_size": window, "sliding_window_cache": 1, "do_rotary": 1}
    caches = [floats(64, 8), floats(64, 8)]
    for new in (5, 1, 1, 1, 3, 1, 12, 1, 2, 1):
        total += new
        inputs = [floats(1, new, 64), floats(1, new, 32), floats(1, new, 32), keys, values]
        inputs += [np.array([total - 1], np.int32), np.array(total, np.int32), *caches, None, floats(1, 4, new, total)]
        model, feeds = make_model(
            "GroupQueryAttention", inputs, 3, domain=MICROSOFT, attributes=attributes, output_types=[1, 1, 1]
        )
        expected, got = run_reference(model, feeds), run_sdk(model, feeds)
        assert_same(got[0], expected[0], 1e-4, 1e-4)
        step = capacity - window + 1
        resident = total if total <= capacity else total - step * -(-(total - capacity) // step)
        for cache, wanted in zip(got[1:], expected[1:], strict=True):
            assert_same(cache[:, :, :resident], wanted[:, :, :resident], 1e-5, 1e-5)
        keys, values = expected[1:]


BLOCK_COLUMNS = np.array([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]], np.int32)
BLOCK_ROWS = np.array([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]], np.int32)


@pytest.mark.parametrize(("new", "past", "batch"), [(40, 0, 1), (64, 0, 2), (1, 50, 2)])
def test_sparse_attention(new, past, batch):
    inputs = [floats(batch, new, 64), floats(batch, new, 32), floats(batch, new, 32)]
    inputs += [floats(batch, 2, 64, 16), floats(batch, 2, 64, 16), BLOCK_ROWS, BLOCK_COLUMNS]
    inputs += [np.array([new + past], np.int32), np.full(batch, new + past, np.int32), floats(64, 8), floats(64, 8)]
    attributes = {**GROUP_QUERY, "sparse_block_size": 16, "do_rotary": 1}
    model, feeds = make_model("SparseAttention", inputs, 3, domain=MICROSOFT, attributes=attributes, output_types=[1, 1, 1])
    for got, expected in zip(run_sdk(model, feeds), run_in_place(model, feeds, {"x3": "y1", "x4": "y2"}), strict=True):
        assert_same(got, expected, 1e-4, 1e-4)


def run_in_place(model, feeds, shared):
    """Outputs of onnxruntime with some outputs in the buffers of inputs."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value.copy()) for name, value in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y0")
    for name, output in shared.items():
        binding.bind_ortvalue_output(output, values[name])
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(2, 3, 5, 16), (2, 5, 48)])
def test_multimodal_rotary_embedding(layout, interleaved, shape):
    inputs = [floats(*shape), RNG.integers(0, 9, (3, 2, 5)).astype(np.int64), floats(9, 6), floats(9, 6)]
    attributes = {"mrope_section": [2, 2, 2], "mrope_layout": layout, "interleaved": interleaved}
    attributes |= {"rotary_embedding_dim": 12, "num_heads": 3}
    compare("MRotaryEmbedding", inputs, domain=MICROSOFT, attributes=attributes)
