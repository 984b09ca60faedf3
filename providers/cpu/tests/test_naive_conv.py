"""Convolutions and poolings of few windows by compiled tasks, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.conv.small import naive
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.pool import operators as pool
from ort_sdk_cpu.pool import select

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def theirs(op_type, inputs, attributes, domain=""):
    names = [f"x{index}" for index in range(len(inputs))]
    node = helper.make_node(op_type, names, ["y"], domain=domain, **attributes)
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name, x in zip(names, inputs, strict=True)]
    graph = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip(names, inputs, strict=True)))[0]


@pytest.fixture
def made(monkeypatch):
    """The writers that were made."""
    found = []
    for module, name in ((naive, "naive_writer"), (pool, "_single_channel_writer")):
        writer = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *given, writer=writer: found.append(writer(*given)) or found[-1])
    return found


CASES = {
    "line": ((2, 3, 9), (4, 3, 3), {"pads": [2, 1]}),
    "few lines": ((1, 2, 5, 7), (5, 2, 3, 3), {"pads": [1, 1, 1, 1]}),
    "long rows": ((1, 1, 3, 45), (3, 1, 2, 5), {"pads": [0, 3, 1, 2]}),
    "steps": ((2, 3, 8, 39), (3, 3, 2, 3), {"strides": [3, 2], "pads": [0, 1, 0, 1]}),
    "dilations": ((1, 2, 9, 21), (6, 2, 3, 2), {"dilations": [2, 5], "pads": [1, 0, 0, 4]}),
    "groups": ((3, 6, 5, 6), (9, 2, 2, 2), {"group": 3}),
    "one filter each": ((1, 5, 6, 6), (5, 1, 3, 3), {"group": 5, "auto_pad": "SAME_LOWER"}),
    "one tap": ((2, 4, 3, 6), (3, 4, 1, 1), {"strides": [2, 2]}),
    "volume": ((2, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"strides": [1, 2, 1], "pads": [1, 0, 1, 0, 2, 1], "dilations": [2, 1, 1]}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolution(run_both, made, name, has_bias):
    x_shape, weight_shape, attributes = CASES[name]
    inputs = [random(*x_shape), random(*weight_shape, seed=1), *([random(weight_shape[0], seed=2)] if has_bias else [])]
    _, bound = run_both("Conv", *inputs, **attributes)
    assert made
    assert None not in made
    np.testing.assert_allclose(bound[0], theirs("Conv", inputs, attributes), rtol=1e-5, atol=2e-5)


TRANSPOSED = {
    "line": ((2, 3, 9), (3, 4, 3), {"pads": [2, 1]}),
    "steps": ((1, 3, 5, 7), (3, 2, 3, 4), {"strides": [2, 3], "pads": [1, 0, 0, 2], "output_padding": [1, 2]}),
    "dilations": ((1, 2, 4, 6), (2, 5, 3, 2), {"dilations": [2, 3]}),
    "groups": ((2, 6, 4, 3), (6, 2, 2, 2), {"group": 3, "strides": [2, 2]}),
    "large padding": ((1, 2, 6, 6), (2, 3, 2, 2), {"pads": [2, 2, 1, 3]}),
    "given shape": ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [3, 2], "output_shape": [10, 8]}),
    "same": ((1, 2, 3, 4), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "volume": ((2, 2, 2, 3, 4), (2, 3, 2, 1, 3), {"strides": [2, 1, 2], "pads": [0, 0, 1, 1, 0, 1]}),
}


@pytest.mark.parametrize("name", TRANSPOSED)
@pytest.mark.parametrize("has_bias", [False, True])
def test_transposed(run_both, made, name, has_bias):
    x_shape, weight_shape, attributes = TRANSPOSED[name]
    outputs = weight_shape[1] * attributes.get("group", 1)
    inputs = [random(*x_shape), random(*weight_shape, seed=1), *([random(outputs, seed=2)] if has_bias else [])]
    _, bound = run_both("ConvTranspose", *inputs, **attributes)
    assert made
    assert None not in made
    np.testing.assert_allclose(bound[0], theirs("ConvTranspose", inputs, attributes), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("name", "parameters"), [("Relu", None), ("LeakyRelu", [0.25]), ("Tanh", None)])
@pytest.mark.parametrize("infinite", [False, True])
def test_activations(run_both, name, parameters, infinite):
    attributes = {"activation": name} | ({} if parameters is None else {"activation_params": parameters})
    inputs = [random(1, 2, 6, 9), random(3, 2, 2, 2, seed=1), random(3, seed=2)]
    if infinite:
        inputs[2][1] = -np.inf
    _, bound = run_both("FusedConv", *inputs, domain="com.microsoft", version=1, **attributes)
    np.testing.assert_allclose(bound[0], theirs("FusedConv", inputs, attributes, "com.microsoft"), rtol=1e-5, atol=2e-5)


POOLS = {
    "line": ((2, 3, 9), {"kernel_shape": [3], "pads": [1, 2]}),
    "steps": ((1, 2, 7, 9), {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [1, 1, 0, 1]}),
    "dilations": ((1, 2, 9, 9), {"kernel_shape": [2, 3], "dilations": [3, 2], "ceil_mode": 1, "strides": [2, 3]}),
    "volume": ((1, 2, 4, 5, 6), {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2], "pads": [0, 1, 1, 1, 1, 0]}),
}


@pytest.mark.parametrize("name", POOLS)
def test_max_pool(run_both, made, name, monkeypatch):
    monkeypatch.setattr(select, "_is_for_nchw", lambda _problem: False)  # it takes them where its code is at hand
    shape, attributes = POOLS[name]
    x = random(*shape)
    _, bound = run_both("MaxPool", x, **attributes)
    assert made
    assert None not in made
    np.testing.assert_array_equal(bound[0], theirs("MaxPool", [x], attributes))


def test_not_a_number_is_the_largest(run_both):
    x = random(1, 1, 5, 5)
    x[0, 0, 2, 2] = np.nan
    expected, bound = run_both("MaxPool", x, kernel_shape=[2, 2])
    np.testing.assert_array_equal(bound[0], expected[0])
    assert np.isnan(bound[0]).sum() == 4
