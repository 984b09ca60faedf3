"""DynamicQuantizeLSTM and the recurrences of linear attention against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.opset.one_node import compare

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(31)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("per_column", [False, True])
def test_dynamic_quantize_lstm(per_column):
    hidden, size, directions = 8, 6, 2
    shape = (directions, 4 * hidden) if per_column else (directions,)
    parameters = [np.full(shape, 0.005, np.float32), np.zeros(shape, np.int8)]
    weights = [RNG.integers(-127, 128, (directions, rows, 4 * hidden)).astype(np.int8) for rows in (size, hidden)]
    states = [floats(directions, 3, hidden), floats(directions, 3, hidden)]
    inputs = [floats(7, 3, size), *weights, floats(directions, 8 * hidden), np.array([7, 3, 5], np.int32), *states]
    inputs += [floats(directions, 3 * hidden) * np.float32(0.1), *parameters, *parameters]
    attributes = {"direction": "bidirectional", "hidden_size": hidden}
    # onnxruntime quantizes the inputs of each step to 8 bits as well.
    compare(
        "DynamicQuantizeLSTM",
        inputs,
        3,
        domain=MICROSOFT,
        attributes=attributes,
        constants=(1, 2, 8, 9, 10, 11),
        rtol=0,
        atol=0.03,
    )


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_causal_convolution(activation):
    inputs = [floats(2, 3, 5), floats(3, 1, 4), floats(3), floats(2, 3, 3)]
    compare("CausalConvWithState", inputs, 2, domain=MICROSOFT, attributes={"activation": activation}, atol=1e-4)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule):
    decay = -np.abs(floats(2, 3, 1)) if rule.startswith("gated") else None
    beta = np.abs(floats(2, 3, 1)) if rule.endswith("delta") else None
    inputs = [floats(2, 3, 8), floats(2, 3, 4), floats(2, 3, 6), floats(2, 1, 4, 6), decay, beta]
    attributes = {"update_rule": rule, "q_num_heads": 2, "kv_num_heads": 1}
    compare("LinearAttention", inputs, 2, domain=MICROSOFT, attributes=attributes, atol=1e-4)


def test_gated_add():
    compare("GatedAdd", [floats(2, 3), floats(2, 3), floats(2, 1)], domain=MICROSOFT)
