"""MoE and QMoE against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from ort_sdk.api import InvalidGraph, KernelInfo
from ort_sdk.opset.contrib.moe import moe
from ort_sdk.opset.definition import as_namespace
from tests.opset.one_node import assert_same, compare, make_model, run_sdk

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(29)
EXPERTS, TOKENS, HIDDEN, INTER = 4, 5, 32, 16
SWIGLU = {"activation_type": "swiglu", "swiglu_fusion": 1}
GPT_OSS = {**SWIGLU, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0}


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def quantized(bits, block_size, with_zero_points):
    inputs = [floats(TOKENS, HIDDEN), floats(TOKENS, EXPERTS)]
    zeros = []
    for outputs, width in ((2 * INTER, HIDDEN), (HIDDEN, INTER)):
        blocks = width // block_size if block_size else 1
        scale_shape = (EXPERTS, outputs, blocks) if block_size else (EXPERTS, outputs)
        weight = RNG.integers(0, 256, (EXPERTS, outputs, width * bits // 8)).astype(np.uint8)
        inputs += [weight, RNG.uniform(0.01, 0.1, scale_shape).astype(np.float32), floats(EXPERTS, outputs)]
        packed = -(-blocks * bits // 8) if block_size else outputs * bits // 8
        zero_shape = (EXPERTS, outputs, packed) if block_size else (EXPERTS, packed)
        zeros.append(RNG.integers(0, 256, zero_shape).astype(np.uint8) if with_zero_points else None)
    return [*inputs, None, None, None, *zeros]


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("normalize", [0, 1])
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
def test_moe(k, normalize, activation):
    inputs = [floats(TOKENS, HIDDEN), floats(TOKENS, EXPERTS), floats(EXPERTS, INTER, HIDDEN), floats(EXPERTS, INTER)]
    inputs += [floats(EXPERTS, HIDDEN, INTER), floats(EXPERTS, HIDDEN)]
    attributes = {"k": k, "normalize_routing_weights": normalize, "activation_type": activation}
    compare("MoE", inputs, domain=MICROSOFT, attributes=attributes, rtol=1e-4, atol=1e-3)


def test_moe_with_swiglu():
    inputs = [floats(1, TOKENS, HIDDEN), floats(TOKENS, EXPERTS), floats(EXPERTS, 2 * INTER, HIDDEN), floats(EXPERTS, 2 * INTER)]
    inputs += [floats(EXPERTS, HIDDEN, INTER), floats(EXPERTS, HIDDEN)]
    compare("MoE", inputs, domain=MICROSOFT, attributes={"k": 2, **GPT_OSS}, rtol=1e-4, atol=1e-2)


def test_the_three_layouts_of_swiglu_agree():
    x, router = floats(TOKENS, HIDDEN), floats(TOKENS, EXPERTS)
    swish, linear, second = floats(EXPERTS, INTER, HIDDEN), floats(EXPERTS, INTER, HIDDEN), floats(EXPERTS, HIDDEN, INTER)
    interleaved = np.stack([swish, linear], axis=2).reshape(EXPERTS, 2 * INTER, HIDDEN)
    arguments = {"domain": MICROSOFT, "output_types": [1]}
    attributes = {"k": 2, **GPT_OSS}
    (expected,) = run_sdk(*make_model("MoE", [x, router, interleaved, None, second], attributes=attributes, **arguments))
    gate_and_linear = np.concatenate([swish, linear], axis=1)
    model = make_model(
        "MoE", [x, router, gate_and_linear, None, second], attributes={**attributes, "swiglu_fusion": 2}, **arguments
    )
    assert_same(run_sdk(*model)[0], expected, 1e-4, 1e-4)
    inputs = [x, router, swish, None, second, None, linear]
    model = make_model("MoE", inputs, attributes={**attributes, "swiglu_fusion": 0}, **arguments)
    assert_same(run_sdk(*model)[0], expected, 1e-4, 1e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("block_size", [0, 16])
@pytest.mark.parametrize("with_zero_points", [False, True])
def test_qmoe(bits, block_size, with_zero_points):
    attributes = {"k": 2, "expert_weight_bits": bits, **GPT_OSS}
    if block_size:
        attributes["block_size"] = block_size
    inputs = quantized(bits, block_size, with_zero_points)
    compare("QMoE", inputs, domain=MICROSOFT, attributes=attributes, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize("normalize", [0, 1])
def test_qmoe_with_weights_of_its_own_for_mixing(normalize):
    inputs = [*quantized(4, 0, False), None, np.abs(floats(TOKENS, EXPERTS))]
    attributes = {"k": 2, "normalize_routing_weights": normalize, **SWIGLU}
    compare("QMoE", inputs, domain=MICROSOFT, attributes=attributes, rtol=1e-3, atol=1e-2)


def test_unknown_activation():
    with pytest.raises(InvalidGraph, match="activation_type is 'cube'"):
        moe(KernelInfo("MoE", 1, MICROSOFT, attributes={"activation_type": "cube"}), as_namespace(np))
