"""com.microsoft normalisations, embeddings and Gelu variants against onnxruntime and float64 formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

import ort_sdk
from tests.opset.one_node import compare, make_model, run_sdk

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(3)


def floats(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        ("Gelu", [floats(3, 40)], {}),
        ("BiasGelu", [floats(3, 40), floats(40)], {}),
        ("FastGelu", [floats(3, 40)], {}),
        ("FastGelu", [floats(3, 40), floats(40)], {}),
        ("QuickGelu", [floats(3, 40)], {"alpha": 1.3}),
    ],
)
def test_activations(op_type, inputs, attributes):
    compare(op_type, inputs, domain=MICROSOFT, attributes=attributes)


def run_alone(op_type, inputs, **attributes):
    (got,) = run_sdk(*make_model(op_type, inputs, domain=MICROSOFT, attributes=attributes, output_types=[1]))
    return got


def test_fusions_onnxruntime_has_on_accelerators_only():
    x, bias, skip = floats(2, 3, 8), floats(8), floats(2, 3, 8)
    np.testing.assert_allclose(run_alone("BiasAdd", [x, bias, skip]), x + bias + skip, rtol=1e-6)
    total = (x + bias).astype(np.float64)
    right = total[..., 4:]
    expected = total[..., :4] * right * 0.5 * (1 + np.vectorize(math.erf)(right / math.sqrt(2)))
    np.testing.assert_allclose(run_alone("BiasSplitGelu", [x, bias]), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(run_alone("ScaledSiLU", [x], alpha=2.0), 2 * x / (1 + np.exp(-2 * x)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("outputs", [1, 2])
def test_simplified_layer_normalization(axis, outputs):
    x = floats(2, 3, 8)
    compare("SimplifiedLayerNormalization", [x, floats(*x.shape[axis:])], outputs, opset=17, attributes={"axis": axis})


def test_simplified_layer_normalization_of_half_precision():
    inputs = [floats(2, 8, dtype=np.float16), floats(8, dtype=np.float16)]
    compare("SimplifiedLayerNormalization", inputs, opset=17, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("skip_shape", [(2, 3, 8), (1, 3, 8), (3, 8)])
@pytest.mark.parametrize("optional", ["none", "beta", "bias", "both"])
def test_skip_layer_normalization(skip_shape, optional):
    beta = floats(8) if optional in {"beta", "both"} else None
    bias = floats(8) if optional in {"bias", "both"} else None
    inputs = [floats(2, 3, 8), floats(*skip_shape), floats(8), beta, bias]
    compare("SkipLayerNormalization", inputs, ["y", "", "", "sum"], domain=MICROSOFT, attributes={"epsilon": 1e-3})


@pytest.mark.parametrize("with_bias", [False, True])
def test_skip_simplified_layer_normalization(with_bias):
    inputs = [floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8) if with_bias else None]
    compare("SkipSimplifiedLayerNormalization", inputs, ["y", "", "", "sum"], domain=MICROSOFT)


@pytest.mark.parametrize("with_segment", [False, True])
@pytest.mark.parametrize("positions", [None, (1, 4), (2, 4)])
def test_embed_layer_normalization(with_segment, positions):
    ids = RNG.integers(0, 9, (2, 4)).astype(np.int32)
    inputs = [
        ids,
        RNG.integers(0, 2, (2, 4)).astype(np.int32) if with_segment else None,
        floats(9, 8),
        floats(6, 8),
        floats(2, 8) if with_segment else None,
        floats(8),
        floats(8),
        np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32),
        None if positions is None else RNG.integers(0, 6, positions).astype(np.int32),
    ]
    compare("EmbedLayerNormalization", inputs, 3, domain=MICROSOFT, atol=1e-4)


def test_quantized_embed_layer_normalization():
    def table(*shape):
        return RNG.integers(0, 256, shape).astype(np.uint8)

    ids = RNG.integers(0, 9, (2, 4)).astype(np.int32)
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1]], np.int32)
    tables = [table(9, 8), table(6, 8), table(2, 8), table(8), table(8)]
    scales = [np.array(value, np.float32) for value in (0.01, 0.02, 0.03, 0.04, 0.05)]
    zeros = [np.array(value, np.uint8) for value in (120, 121, 122, 123, 124)]
    inputs = [ids, RNG.integers(0, 2, (2, 4)).astype(np.int32), *tables, mask, *scales, *zeros]
    compare("QEmbedLayerNormalization", inputs, 2, domain=MICROSOFT, atol=1e-3)


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(channels_last, activation):
    x, gamma, beta = floats(2, 6, 3, 4), floats(6), floats(6)
    given = np.moveaxis(x, 1, -1).copy() if channels_last else x
    attributes = {"groups": 3, "channels_last": channels_last, "activation": activation}
    got = run_alone("GroupNorm", [given, gamma, beta], **attributes)
    groups = x.astype(np.float64).reshape(2, 3, -1)
    deviation = np.sqrt(groups.var(axis=-1, keepdims=True) + 1e-5)
    expected = ((groups - groups.mean(axis=-1, keepdims=True)) / deviation).reshape(x.shape)
    expected = expected * gamma[:, None, None] + beta[:, None, None]
    expected = expected / (1 + np.exp(-expected)) if activation else expected
    got = np.moveaxis(got, -1, 1) if channels_last else got
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("bias_shape", "axis", "inner"), [((2, 1, 4, 5), 2, 1), ((1, 3, 4, 5), 2, 0), ((1, 1, 4, 5), 3, 0)])
def test_bias_softmax(bias_shape, axis, inner):
    data, bias = floats(2, 3, 4, 5), floats(*bias_shape)
    if axis == 3:
        bias = bias[:, :, :1]
    powers = np.exp((data + bias).astype(np.float64))
    expected = powers / powers.sum(axis=tuple(range(axis, 4)), keepdims=True)
    got = run_alone("BiasSoftmax", [data, bias], axis=axis, is_inner_broadcast=inner)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_bias_softmax_of_nothing_in_every_run():
    inputs = [floats(2, 1, 2, 0), floats(1, 1, 2, 0)]
    attributes = {"axis": 2, "is_inner_broadcast": 0}
    model, feeds = make_model("BiasSoftmax", inputs, domain=MICROSOFT, attributes=attributes, output_types=[1])
    session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(5):
        assert session.run(None, feeds)[0].shape == (2, 1, 2, 0)


def bucket(distance, count, max_distance, bidirectional):
    """Bucket of one query position minus key position, after the T5 paper's scheme."""
    offset = 0
    if bidirectional:
        count //= 2
        offset = count if distance < 0 else 0
        distance = abs(distance)
    distance = max(distance, 0)
    exact = count // 2
    if distance < exact:
        return offset + distance
    return offset + min(exact + int(math.log(distance / exact) / math.log(max_distance / exact) * (count - exact)), count - 1)


@pytest.mark.parametrize("bidirectional", [0, 1])
def test_relative_position_bias(bidirectional):
    table, lengths = floats(32, 4), (40, 37)
    inputs = [table, np.array([lengths[0]], np.int64), np.array([lengths[1]], np.int64)]
    got = run_alone("RelativePositionBias", inputs, max_distance=30, is_bidirectional=bidirectional)
    buckets = np.array([[bucket(q - k, 32, 30, bidirectional) for k in range(lengths[1])] for q in range(lengths[0])])
    np.testing.assert_array_equal(got[0], np.moveaxis(table[buckets], -1, 0))


def test_gated_relative_position_bias():
    query, bias, positions, weight, gate_bias = floats(2, 3, 8), floats(8), floats(1, 2, 3, 3), floats(4, 6), floats(6)
    eco_a = floats(1, 2, 1, 1)
    got = run_alone("GatedRelativePositionBias", [query, bias, positions, weight, gate_bias, eco_a], num_heads=2)
    heads = np.moveaxis((query + bias).reshape(2, 3, 2, 4), 2, 1)
    gates = 1 / (1 + np.exp(-(heads @ weight + gate_bias).reshape(2, 2, 3, 2, 3).sum(axis=-1)))
    expected = (gates[..., :1] * (gates[..., 1:] * eco_a - 1) + 2) * positions
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
