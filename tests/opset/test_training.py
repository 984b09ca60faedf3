"""Optimizer steps against their formulas in float64, over NumPy and over the array API standard."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, InvalidGraph, KernelInfo, KernelRegistry, NodeArg
from ort_sdk.opset import add_opset

DOMAIN = "ai.onnx.preview.training"
RNG = np.random.default_rng(3)


def kernel(op_type, library, **attributes):
    registry = KernelRegistry("TestExecutionProvider")
    add_opset(registry, library)
    (row,) = registry.candidates(DOMAIN, op_type)
    inputs = (NodeArg("r", "tensor(float)"), NodeArg("t", "tensor(int64)"), NodeArg("x", "tensor(double)"))
    return row.create(KernelInfo(op_type, 1, DOMAIN, attributes=attributes, inputs=inputs)).compute


def adagrad(r, t, x, g, h, a):
    g = a["norm_coefficient"] * x + g
    h = h + g * g
    return x - r / (1 + t * a["decay_factor"]) * g / (np.sqrt(h) + a["epsilon"]), h


def adam(r, t, x, g, v, h, a):
    g = a["norm_coefficient"] * x + g
    v = a["alpha"] * v + (1 - a["alpha"]) * g
    h = a["beta"] * h + (1 - a["beta"]) * g * g
    r = r * np.sqrt(1 - a["beta"] ** t) / (1 - a["alpha"] ** t) if t > 0 else r
    return (1 - a["norm_coefficient_post"]) * (x - r * v / (np.sqrt(h) + a["epsilon"])), v, h


def momentum(r, t, x, g, v, a):
    g = a["norm_coefficient"] * x + g
    v = a["alpha"] * v + (a["beta"] if t > 0 else 1) * g
    return x - r * (v if a["mode"] == "standard" else g + a["alpha"] * v), v


COMMON = {"norm_coefficient": 0.01, "alpha": 0.8, "beta": 0.9}
CASES = [
    ("Adagrad", adagrad, 1, {"norm_coefficient": 0.01, "decay_factor": 0.1, "epsilon": 1e-4}),
    ("Adam", adam, 2, {**COMMON, "norm_coefficient_post": 0.05, "epsilon": 1e-4}),
    ("Momentum", momentum, 1, {**COMMON, "mode": "standard"}),
    ("Momentum", momentum, 1, {**COMMON, "mode": "nesterov"}),
]


@pytest.mark.parametrize("library", [np, array_api_strict])
@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("tensors", [1, 3])
@pytest.mark.parametrize(("op_type", "formula", "states", "attributes"), CASES)
def test_step(op_type, formula, states, attributes, tensors, count, library):
    groups = [[np.abs(RNG.standard_normal((2, 3))) for _ in range(tensors)] for _ in range(2 + states)]
    flat = [library.asarray(array) for group in groups for array in group]
    rate, number = np.array(0.1, dtype=np.float32), np.array(count)
    outputs = kernel(op_type, library, **attributes)(rate, number, *flat)
    expected = [formula(float(rate), count, *columns, attributes) for columns in zip(*groups, strict=True)]
    wanted = [result[group] for group in range(1 + states) for result in expected]
    assert len(outputs) == len(wanted)
    for got, want in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-12)


def test_groups_must_be_equally_long():
    x = np.ones(2)
    with pytest.raises(InvalidArgument, match="groups of equal length"):
        kernel("Adagrad", np)(np.array(0.1), np.array(0), x, x)


def test_unknown_mode_is_refused():
    with pytest.raises(InvalidGraph, match="mode 'fast'"):
        kernel("Momentum", np, **COMMON, mode="fast")
