"""Convolutions with few windows by a compiled task, beside float64."""

import itertools

import numpy as np
import pytest
from ort_sdk_cpu.conv.small import few_windows
from ort_sdk_cpu.platform import libraries

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def convolved(x, weight, bias, *, strides, dilations, pads, group):
    """By its definition, one window at a time."""
    rank = len(strides)
    before, behind = pads[:rank], pads[rank:]
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *zip(before, behind, strict=True)])
    spans = [(size - 1) * step + 1 for size, step in zip(weight.shape[2:], dilations, strict=True)]
    sizes = [(size - span) // step + 1 for size, span, step in zip(x.shape[2:], spans, strides, strict=True)]
    found = np.zeros((len(x), len(weight), *sizes))
    inputs, outputs = weight.shape[1], len(weight) // group
    for position in itertools.product(*map(range, sizes)):
        parts = zip(position, strides, spans, dilations, strict=True)
        index = tuple(slice(at * stride, at * stride + span, step) for at, stride, span, step in parts)
        for number in range(group):
            window = x[(slice(None), slice(number * inputs, (number + 1) * inputs), *index)].reshape(len(x), -1)
            rows = slice(number * outputs, (number + 1) * outputs)
            found[(slice(None), rows, *position)] = window @ weight[rows].reshape(outputs, -1).T
    return found if bias is None else found + bias.reshape(-1, *[1] * rank)


CASES = {
    "signal": ((1, 1, 512), (258, 1, 256), {"strides": [128], "pads": [64, 64]}),
    "several samples": ((3, 129, 4), (40, 129, 3), {"pads": [1, 1]}),
    "one window": ((2, 64, 3), (33, 64, 3), {}),
    "steps": ((1, 64, 9), (50, 64, 3), {"strides": [2], "dilations": [2], "pads": [2, 1]}),
    "groups": ((2, 60, 7), (48, 20, 3), {"group": 3, "pads": [1, 1]}),
    "pointwise": ((1, 70, 5), (31, 70, 1), {}),
    "picture": ((2, 16, 5, 6), (30, 16, 3, 2), {"strides": [2, 3], "pads": [1, 0, 2, 1], "dilations": [1, 2]}),
    "wide kernel": ((1, 2, 3, 40), (40, 2, 2, 33), {"pads": [1, 2, 0, 3], "strides": [1, 4]}),
}


@pytest.fixture(params=[1, 2])
def threads(request, monkeypatch):
    monkeypatch.setattr(few_windows, "WORK_PER_THREAD", 1 if request.param == 2 else 1 << 40)
    return request.param


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolution(run_both, monkeypatch, name, has_bias):
    x_shape, weight_shape, attributes = CASES[name]
    made = []
    writer = few_windows.few_windows_writer
    monkeypatch.setattr(few_windows, "few_windows_writer", lambda *given: made.append(writer(*given)) or made[-1])
    x, weight, bias = random(*x_shape), random(*weight_shape, seed=1), random(weight_shape[0], seed=2)
    rank = len(x_shape) - 2
    whole = {"strides": [1] * rank, "dilations": [1] * rank, "pads": [0] * 2 * rank, "group": 1} | attributes
    expected = convolved(x, weight, bias if has_bias else None, **whole)
    inputs = [x, weight, *([bias] if has_bias else [])]
    _, bound = run_both("Conv", *inputs, **attributes)
    assert None not in made
    assert made
    np.testing.assert_allclose(bound[0], expected, rtol=1e-5, atol=2e-5)


ACTIVATIONS = {
    "Relu": (None, lambda y: np.maximum(y, 0)),
    "LeakyRelu": ([0.25], lambda y: np.where(y < 0, 0.25 * y, y)),
    "Sigmoid": (None, lambda y: 1 / (1 + np.exp(-y))),
    "Tanh": (None, np.tanh),
    "HardSigmoid": ([0.1, 0.4], lambda y: np.clip(0.1 * y + 0.4, 0, 1)),
    "HardSwish": (None, lambda y: y * np.clip(y / 6 + 0.5, 0, 1)),
    "Clip": ([-0.5, 2.0], lambda y: np.clip(y, -0.5, 2)),
    "Softsign": (None, lambda y: y / (1 + np.abs(y))),
}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("has_sum", [False, True])
def test_fused(run_both, activation, has_sum):
    parameters, function = ACTIVATIONS[activation]
    x, weight, bias = random(1, 64, 6), random(40, 64, 3, seed=1), random(40, seed=2)
    added = random(1, 40, 4, seed=3)
    expected = convolved(x, weight, bias, strides=[1], dilations=[1], pads=[0, 0], group=1) + (added if has_sum else 0)
    extra = {} if parameters is None else {"activation_params": parameters}
    inputs = [x, weight, bias, *([added] if has_sum else [])]
    _, bound = run_both("FusedConv", *inputs, domain="com.microsoft", activation=activation, **extra)
    np.testing.assert_allclose(bound[0], function(expected), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("activation", ["Sigmoid", "Tanh", "HardSigmoid", "Clip"])
def test_activations_of_groups_and_of_what_is_not_finite(run_both, activation):
    parameters, function = ACTIVATIONS[activation]
    x, weight = random(2, 128, 3), random(96, 32, 1, seed=1)
    x[0, 0, 0], x[1, 40, 1], x[1, 100, 2] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        plain = convolved(x, weight, None, strides=[1], dilations=[1], pads=[0, 0], group=4)
    extra = {} if parameters is None else {"activation_params": parameters}
    _, bound = run_both("FusedConv", x, weight, group=4, domain="com.microsoft", activation=activation, **extra)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(bound[0], function(plain), rtol=1e-5, atol=2e-5)


def test_infinities_and_rectifier(run_both):
    x, weight = random(1, 64, 4), np.abs(random(40, 64, 3, seed=1))
    x[0, 0, 0] = -np.inf
    _, bound = run_both("FusedConv", x, weight, domain="com.microsoft", activation="Relu")
    assert (bound[0][..., 0] == 0).all()
    assert np.isfinite(bound[0]).all()
