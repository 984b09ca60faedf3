"""Convolutions of signals with one filter per channel, in sessions, against onnxruntime."""

import itertools

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="needs numba")

RNG = np.random.default_rng(4)


def model_of(channels, taps, *, activation="", is_turned=False, **attributes):
    """With ``is_turned``, what is convolved lies with channels last: another convolution makes it."""
    weights = {
        "w": RNG.standard_normal((channels, 1, taps)),
        "b": RNG.standard_normal(channels),
        "mixing": RNG.standard_normal((channels, channels, 1)) / channels,
    }
    nodes = [helper.make_node("Conv", ["x", "mixing"], ["mixed"])] if is_turned else []
    source = "mixed" if is_turned else "x"
    result = "sums" if activation else "y"
    nodes.append(helper.make_node("Conv", [source, "w", "b"], [result], group=channels, **attributes))
    if activation:
        nodes.append(helper.make_node(activation, ["sums"], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", channels, "length"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    initializers = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "signal", [x], [y], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def check(model, *shapes):
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for shape in shapes:
        for _ in range(4):  # the first runs go step by step
            x = RNG.standard_normal(shape).astype(np.float32)
            (found,), (wanted,) = session.run(None, {"x": x}), reference.run(None, {"x": x})
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize("channels", [2, 16, 37, 100])
def test_paddings_strides_and_dilations(channels, is_turned):
    for taps, pads, stride, dilation in itertools.product((1, 3, 8), ([0, 0], [2, 5], [7, 0]), (1, 2), (1, 3)):
        model = model_of(channels, taps, is_turned=is_turned, pads=pads, strides=[stride], dilations=[dilation])
        check(model, (1, channels, 23))


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Sigmoid", "HardSwish"])
def test_what_follows(activation):
    check(model_of(24, 5, activation=activation, pads=[2, 2]), (2, 24, 40))


def test_samples_lengths_and_threads():
    check(model_of(256, 31, pads=[15, 15]), (1, 256, 1), (3, 256, 50), (1, 256, 700), (2, 256, 300))


def test_a_signal_shorter_than_the_filter_is_refused():
    session = ort.InferenceSession(model_of(4, 9), providers=["CPUExecutionProvider"])
    with pytest.raises(ort.api.OrtSdkError, match="does not fit"):
        session.run(None, {"x": np.zeros((1, 4, 5), np.float32)})
