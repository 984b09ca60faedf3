"""Attention and its relatives of ai.onnx against onnxruntime and formulas, and over another array library."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, InvalidGraph, TensorElementType
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

RNG = np.random.default_rng(7)
FLOAT = TensorElementType.FLOAT


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def on_both(op_type, inputs, outputs, *, opset, attributes=None):
    """Outputs of the session, checked against those over another array library."""
    model, feeds = make_model(op_type, inputs, outputs, opset=opset, attributes=attributes, output_types=[1] * outputs)
    results = run_sdk(model, feeds)
    others = run_kernel(op_type, inputs, [FLOAT] * outputs, opset=opset, attributes=attributes)
    for result, other in zip(results, others[: len(results)], strict=True):
        assert_same(other, result, 1e-5, 1e-5)
    return results


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_attention_with_masks_and_cache(kv_heads, opset):
    q, k, v = normal(2, 4, 3, 8), normal(2, kv_heads, 5, 8), normal(2, kv_heads, 5, 6)
    cache = [normal(2, kv_heads, 4, 8), normal(2, kv_heads, 4, 6)]
    for inputs, outputs, attributes in (
        ([q, k, v], 1, {}),
        ([q, k, v], 1, {"is_causal": 1}),
        ([q, k, v, normal(2, 1, 3, 5)], 1, {"softcap": 2.0}),
        ([q, k, v, RNG.random((3, 5)) > 0.4], 1, {"scale": 0.3}),
        ([q, k, v, np.zeros((3, 5), bool)], 1, {}),
        ([q, k, v, normal(3, 9), *cache], 3, {"is_causal": 1}),
        ([q, k, v], 1, {"softmax_precision": 11}),
    ):
        compare("Attention", inputs, outputs, opset=opset, attributes=attributes, rtol=1e-4)
        on_both("Attention", inputs, outputs, opset=opset, attributes=attributes)


@pytest.mark.parametrize("mode", [0, 1, 3])
def test_attention_shows_its_scores(mode):
    inputs = [normal(2, 4, 3, 8), normal(2, 2, 5, 8), normal(2, 2, 5, 6), RNG.random((3, 5)) > 0.4]
    attributes = {"qk_matmul_output_mode": mode, "softcap": 2.0}
    compare("Attention", inputs, ["y", "", "", "scores"], opset=23, attributes=attributes, rtol=1e-4)


def test_attention_shows_masked_scores_as_minus_infinity():
    q, mask = normal(1, 1, 2, 4), np.array([[True, False], [True, True]])
    model, feeds = make_model(
        "Attention", [q, q, q, mask], ["y", "", "", "s"], opset=24, attributes={"qk_matmul_output_mode": 2}, output_types=[1, 1]
    )
    _, scores = run_sdk(model, feeds)
    expected = np.where(mask, q[0, 0] @ q[0, 0].T / 2, -np.inf)
    np.testing.assert_allclose(scores[0, 0], expected, rtol=1e-5)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_attention_of_packed_heads(kv_heads):
    q, k, v = normal(2, 3, 32), normal(2, 5, 8 * kv_heads), normal(2, 5, 6 * kv_heads)
    cache = [normal(2, kv_heads, 4, 8), normal(2, kv_heads, 4, 6)]
    attributes = {"q_num_heads": 4, "kv_num_heads": kv_heads}
    compare("Attention", [q, k, v], opset=23, attributes=attributes, rtol=1e-4)
    compare("Attention", [q, k, v, None, *cache], 3, opset=23, attributes={**attributes, "is_causal": 1}, rtol=1e-4)
    _, key, value = on_both("Attention", [q, k, v], 3, opset=23, attributes=attributes)
    np.testing.assert_array_equal(key, k.reshape(2, 5, kv_heads, 8).transpose(0, 2, 1, 3))
    np.testing.assert_array_equal(value, v.reshape(2, 5, kv_heads, 6).transpose(0, 2, 1, 3))


def test_attention_over_an_external_cache():
    q, k, v = normal(2, 4, 3, 8), normal(2, 2, 6, 8), normal(2, 2, 6, 6)
    lengths = np.array([4, 6])
    for attributes in ({}, {"is_causal": 1}):
        inputs = [q, k, v, None, None, None, lengths]
        compare("Attention", inputs, opset=24, attributes=attributes, rtol=1e-4)
        on_both("Attention", inputs, 1, opset=24, attributes=attributes)
    short = [q, k, v, normal(3, 6), None, None, lengths]
    (whole,) = on_both("Attention", short, 1, opset=24)
    short[3], short[6] = short[3][:, :4], np.array([4, 4])
    (cut,) = on_both("Attention", short, 1, opset=24)
    np.testing.assert_allclose(cut[0], whole[0], rtol=1e-5)


def test_attention_in_a_window():
    q, k, v = normal(1, 2, 4, 8), normal(1, 2, 6, 8), normal(1, 2, 6, 8)
    rows, columns = np.arange(4)[:, None], np.arange(6)
    for left, right, causal in itertools.product((-1, 0, 2), (-1, 0, 1), (0, 1)):
        mask = np.ones((4, 6), bool)
        mask &= (columns >= rows - left) if left >= 0 else True
        mask &= (columns <= rows + right) if right >= 0 else True
        mask &= (columns <= rows) if causal else True
        attributes = {"left_window_size": left, "right_window_size": right, "is_causal": causal}
        (result,) = on_both("Attention", [q, k, v], 1, opset=25, attributes=attributes)
        (expected,) = on_both("Attention", [q, k, v, mask], 1, opset=25)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ([normal(1, 3, 8), normal(1, 3, 8), normal(1, 3, 8)], {}),
        ([normal(1, 3, 2, 8), normal(1, 2, 2, 8), normal(1, 2, 2, 8)], {}),
        ([normal(1, 2, 2, 8), normal(1, 2, 2, 6), normal(1, 2, 2, 8)], {}),
    ],
)
def test_attention_refuses_what_does_not_fit(inputs, attributes):
    with pytest.raises(InvalidArgument):
        run_kernel("Attention", inputs, [FLOAT], opset=23, attributes=attributes)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotary", [0, 4])
def test_rotary_embedding(rotary, interleaved):
    half = (rotary or 8) // 2
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": rotary}
    by_position = [normal(20, half), normal(20, half), RNG.integers(0, 20, (2, 5))]
    by_token = [normal(2, 5, half), normal(2, 5, half)]
    for caches in (by_position, by_token):
        for x, extra in ((normal(2, 3, 5, 8), {}), (normal(2, 5, 24), {"num_heads": 3})):
            compare("RotaryEmbedding", [x, *caches], opset=23, attributes={**attributes, **extra}, rtol=1e-4)
            on_both("RotaryEmbedding", [x, *caches], 1, opset=23, attributes={**attributes, **extra})


@pytest.mark.parametrize(
    "inputs",
    [
        [normal(2, 5, 24), normal(2, 5, 4), normal(2, 5, 4)],
        [normal(2, 3, 5, 8), normal(2, 5, 3), normal(2, 5, 3)],
        [normal(2, 3, 5, 8), normal(2, 5, 4), normal(2, 5, 3)],
    ],
)
def test_rotary_embedding_refuses_what_does_not_fit(inputs):
    with pytest.raises(InvalidArgument):
        run_kernel("RotaryEmbedding", inputs, [FLOAT], opset=23)


def recurrence(rule, q, k, v, state, decay, beta):
    """The recurrence of LinearAttention for one sample and head, token by token in float64."""
    outputs = []
    for time in range(len(q)):
        if rule.startswith("gated"):
            state = np.exp(decay[time])[:, None] * state
        value = v[time]
        if rule.endswith("delta"):
            value = beta[time] * (value - state.T @ k[time])
        state = state + np.outer(k[time], value)
        outputs.append(q[time] @ state / np.sqrt(q.shape[1]))
    return np.array(outputs), state


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("per_key_decay", [True, False])
def test_linear_attention(per_key_decay, rule):
    batch, time, q_heads, kv_heads, d_k, d_v = 2, 5, 4, 2, 3, 6
    q, k, v = normal(batch, time, q_heads * d_k), normal(batch, time, kv_heads * d_k) * 0.5, normal(batch, time, kv_heads * d_v)
    state = normal(batch, kv_heads, d_k, d_v)
    decay = -np.abs(normal(batch, time, kv_heads * (d_k if per_key_decay else 1)))
    beta = RNG.random((batch, time, kv_heads)).astype(np.float32)
    attributes = {"q_num_heads": q_heads, "kv_num_heads": kv_heads, "update_rule": rule}
    output, present = on_both("LinearAttention", [q, k, v, state, decay, beta], 2, opset=27, attributes=attributes)
    for sample, head in itertools.product(range(batch), range(q_heads)):
        shared = head // (q_heads // kv_heads)
        expected, final = recurrence(
            rule,
            q[sample].reshape(time, q_heads, d_k)[:, head].astype(np.float64),
            k[sample].reshape(time, kv_heads, d_k)[:, shared].astype(np.float64),
            v[sample].reshape(time, kv_heads, d_v)[:, shared].astype(np.float64),
            state[sample, shared].astype(np.float64),
            np.broadcast_to(decay[sample].reshape(time, kv_heads, -1)[:, shared], (time, d_k)),
            beta[sample, :, shared],
        )
        np.testing.assert_allclose(output[sample].reshape(time, q_heads, d_v)[:, head], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(present[sample, shared], final, rtol=1e-4, atol=1e-5)


def test_linear_attention_continues_from_its_state():
    q, k, v = normal(1, 6, 8), normal(1, 6, 8) * 0.5, normal(1, 6, 8)
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "linear"}
    whole, final = on_both("LinearAttention", [q, k, v], 2, opset=27, attributes=attributes)
    head, state = on_both("LinearAttention", [q[:, :4], k[:, :4], v[:, :4]], 2, opset=27, attributes=attributes)
    tail, last = on_both("LinearAttention", [q[:, 4:], k[:, 4:], v[:, 4:], state], 2, opset=27, attributes=attributes)
    np.testing.assert_allclose(np.concatenate([head, tail], axis=1), whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, final, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"update_rule": "gated"}, InvalidArgument),
        ({"update_rule": "delta"}, InvalidArgument),
        ({"update_rule": "linear", "kv_num_heads": 3}, InvalidArgument),
        ({"update_rule": "other"}, InvalidGraph),
    ],
)
def test_linear_attention_refuses_what_does_not_fit(attributes, error):
    attributes = {"q_num_heads": 2, "kv_num_heads": 2, **attributes}
    with pytest.raises(error):
        run_kernel("LinearAttention", [normal(1, 2, 8)] * 3, [FLOAT, FLOAT], opset=27, attributes=attributes)


@pytest.mark.parametrize("kernel", [1, 4])
@pytest.mark.parametrize("activation", ["none", "silu", "swish"])
def test_causal_conv(activation, kernel):
    x, weight, bias, past = normal(2, 3, 6), normal(3, 1, kernel), normal(3), normal(2, 3, kernel - 1)
    attributes = {"activation": activation}
    whole, state = on_both("CausalConvWithState", [x, weight, bias, past], 2, opset=27, attributes=attributes)
    sequence = np.concatenate([past, x], axis=2).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(sequence, kernel, axis=2)
    expected = np.einsum("nclk,ck->ncl", windows, weight[:, 0]) + bias[:, None]
    expected = expected if activation == "none" else expected / (1 + np.exp(-expected))
    np.testing.assert_allclose(whole, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(state, sequence[:, :, 6:].astype(np.float32))


def test_causal_conv_keeps_more_state_than_it_gets():
    x, weight = normal(1, 2, 1), normal(2, 1, 4)
    first, state = on_both("CausalConvWithState", [x, weight], 2, opset=27)
    np.testing.assert_allclose(first, x * weight[None, :, 0, 3:], rtol=1e-6)
    np.testing.assert_array_equal(state, np.concatenate([np.zeros((1, 2, 2), np.float32), x], axis=2))


@pytest.mark.parametrize(
    ("inputs", "attributes", "error"),
    [
        ([normal(1, 2, 4), normal(3, 1, 2)], {}, InvalidArgument),
        ([normal(1, 2, 4), normal(2, 1, 2), None, normal(1, 2, 2)], {}, InvalidArgument),
        ([normal(1, 2, 4), normal(2, 1, 2)], {"activation": "relu"}, InvalidGraph),
    ],
)
def test_causal_conv_refuses_what_does_not_fit(inputs, attributes, error):
    with pytest.raises(error):
        run_kernel("CausalConvWithState", inputs, [FLOAT, FLOAT], opset=27, attributes=attributes)
