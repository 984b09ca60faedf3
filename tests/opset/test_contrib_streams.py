"""Operators on residual streams against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.opset.one_node import compare

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(41)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "scale", "branches"),
    [((2, 3, 4, 8), (4, 8), 0), ((2, 3, 32), (32,), 4), ((2, 3, 32), (8,), 4), ((2, 3, 4, 8), None, 0)],
)
def test_branchwise_rms_norm(shape, scale, branches):
    inputs = [floats(*shape), None if scale is None else floats(*scale)]
    compare("BranchwiseRMSNorm", inputs, domain=MICROSOFT, attributes={"num_branches": branches})


@pytest.mark.parametrize("gates", [(2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 8)])
def test_mixing_of_grouped_streams(gates):
    streams, mix = floats(2, 3, 4, 8), floats(*gates)
    compare("HyperConnectionPreMix", [streams, mix], domain=MICROSOFT, attributes={"reduction_scale": 0.5}, atol=1e-4)
    compare("HyperConnectionPostMix", [streams, floats(2, 3, 8), mix, floats(2, 3, 4, 4)], domain=MICROSOFT, atol=1e-4)


def test_mixing_of_flattened_streams():
    attributes = {"num_branches": 4}
    compare("HyperConnectionPreMix", [floats(2, 3, 32), floats(2, 3, 32)], domain=MICROSOFT, attributes=attributes, atol=1e-4)
    inputs = [floats(2, 3, 32), floats(2, 3, 8), floats(2, 3, 4)]
    compare("HyperConnectionPostMix", inputs, domain=MICROSOFT, attributes=attributes, atol=1e-4)


@pytest.mark.parametrize("outputs", [1, 2])
def test_engram_gate(outputs):
    inputs = [floats(2, 3, 4, 8), floats(2, 3, 4, 8), floats(2, 3, 8), floats(4, 8), floats(4, 8), floats(4, 8)]
    compare("EngramGate", inputs, outputs, domain=MICROSOFT, atol=1e-4)


@pytest.mark.parametrize("outputs", [1, 2])
def test_linear_attention_gate(outputs):
    inputs = [floats(2, 3, 4), floats(4), floats(4), floats(2, 3, 4) if outputs == 2 else None]
    compare("LinearAttentionGate", inputs, outputs, domain=MICROSOFT, atol=1e-4)
