"""Transposed convolutions: those of strides 1 are convolutions, and all take arithmetic per channel into their weights."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

from tests.optimizer.basic.basic_model import assert_equal_at_levels, basic_ops
from tests.optimizer.extended.fused_graph import FLOAT, build, node, open_session, optimized

RNG = np.random.default_rng(8)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def model_of(weight, *nodes, constants=None, size=(5, 7), rank=4, **attributes):
    channels = weight.shape[0]
    shape = [2, channels, *size][:rank]
    first = node("ConvTranspose", ["x", "w", "b"], ["c"], **attributes)
    outputs = weight.shape[1] * attributes.get("group", 1)
    nodes = [first, *nodes] if nodes else [node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)]
    inits = {"w": weight, "b": normal(outputs), **(constants or {})}
    return build(nodes, [("x", FLOAT, shape)], [("y", FLOAT, [None] * rank)], inits, 17)


PLAIN = {
    "padded": ((4, 6, 3, 3), {"pads": [1, 0, 2, 1]}),
    "one tap": ((4, 6, 1, 1), {}),
    "groups": ((4, 3, 3, 2), {"group": 2, "pads": [1, 1, 0, 0]}),
    "one filter per channel": ((4, 1, 3, 3), {"group": 4, "dilations": [2, 1], "pads": [4, 1, 4, 1]}),
    "valid": ((4, 2, 2, 3), {"auto_pad": "VALID"}),
}


@pytest.mark.parametrize("case", PLAIN)
def test_strides_of_one_make_a_convolution(case):
    shape, attributes = PLAIN[case]
    model = model_of(normal(*shape), **attributes)
    assert basic_ops(model) == ["Conv"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rank", [3, 5])
def test_other_ranks(rank):
    model = model_of(normal(4, 6, *[2, 3, 2][: rank - 2]), size=(5, 7, 4), rank=rank)
    assert basic_ops(model) == ["Conv"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


OTHERS = {
    "strides": {"strides": [2, 1]},
    "more pads than windows reach": {"pads": [3, 0, 0, 0]},
    "a size given": {"output_shape": [6, 8]},
    "pads by name": {"auto_pad": "SAME_UPPER"},
}


@pytest.mark.parametrize("case", OTHERS)
def test_others_stay(case):
    model = model_of(normal(4, 6, 3, 3), **OTHERS[case])
    assert basic_ops(model) == ["ConvTranspose"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


PHASES = {
    "super-resolution": ((8, 4, 19, 19), {"strides": [4, 4], "pads": [8, 8, 8, 8], "output_padding": [1, 1]}),
    "eight apart": ((5, 1, 24, 24), {"strides": [8, 8], "pads": [8, 8, 8, 8]}),
    "pads of all sizes": ((6, 4, 16, 23), {"strides": [4, 4], "pads": [1, 4, 3, 3]}),
    "no pads": ((8, 4, 16, 16), {"strides": [4, 4]}),
}


@pytest.mark.parametrize("case", PHASES)
def test_few_channels_with_strides_are_those_of_a_convolution(case):
    shape, attributes = PHASES[case]
    model = model_of(normal(*shape), **attributes)
    assert basic_ops(model) == ["Conv", "DepthToSpace"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


SIGNALS = {
    "inverse Fourier transform": ((10, 1, 256), {"strides": [64]}),
    "two channels": ((6, 2, 128), {"strides": [32], "pads": [40, 56]}),
    "no whole number of steps in the kernel": ((8, 1, 200), {"strides": [64], "pads": [30, 42]}),
    "numbers behind": ((8, 4, 39), {"strides": [16], "pads": [0, 8], "output_padding": [1]}),
}


@pytest.mark.parametrize("case", SIGNALS)
@pytest.mark.parametrize("length", [1, 7])
def test_few_channels_in_1d_are_those_of_a_convolution(case, length):
    shape, attributes = SIGNALS[case]
    model = model_of(normal(*shape), size=(length,), rank=3, **attributes)
    assert basic_ops(model) == ["Conv", "Reshape", "Transpose", "Reshape"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


def test_few_float16_channels_are_those_of_a_convolution():
    weight, bias, x = (array.astype(np.float16) for array in (normal(10, 1, 256), normal(1), normal(2, 10, 7)))
    inputs, outputs = ([(name, TensorProto.FLOAT16, shape)] for name, shape in (("x", x.shape), ("y", [None] * 3)))
    transposed = node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[64])
    model = build([transposed], inputs, outputs, {"w": weight, "b": bias})
    assert [op for op in basic_ops(model) if op != "Cast"] == ["Conv", "Reshape", "Transpose", "Reshape"]
    constants = {"w": np.float32(weight), "b": np.float32(bias)}
    widened = build([transposed], [("x", FLOAT, x.shape)], [("y", FLOAT, [None] * 3)], constants)
    expected = onnxruntime.InferenceSession(widened, providers=["CPUExecutionProvider"]).run(None, {"x": np.float32(x)})[0]
    np.testing.assert_array_equal(open_session(model, 3).run(None, {"x": x})[0], expected.astype(np.float16))


def test_few_channels_of_dequantized_weights_are_those_of_a_convolution():
    weight, scales = RNG.integers(-127, 127, (10, 1, 256)).astype(np.int8), np.abs(normal(10))
    nodes = [
        node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0),
        node("DequantizeLinear", ["r", "t"], ["b"]),
        node("ConvTranspose", ["x", "w", "b"], ["y"], strides=[64]),
    ]
    constants = {"q": weight, "s": scales, "z": np.zeros(10, np.int8), "r": np.int32([7]), "t": np.float32(0.1)}
    model = build(nodes, [("x", FLOAT, [2, 10, 7])], [("y", FLOAT, [None] * 3)], constants)
    assert [found.op_type for found in optimized(model).nodes] == ["Conv", "Reshape", "Transpose", "Reshape"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(("shape", "strides"), [((8, 1, 256), [96]), ((8, 6, 64), [16]), ((2, 1, 256), [64]), ((8, 1, 16), [4])])
def test_other_1d_convolutions_stay(shape, strides):
    model = model_of(normal(*shape), size=(9,), rank=3, strides=strides)
    assert basic_ops(model) == ["ConvTranspose"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


UNEVEN = {
    "no whole steps": ((8, 1, 24, 24), {"strides": [8, 8], "pads": [8, 8, 8, 7]}),
    "other steps along each axis": ((8, 1, 24, 48), {"strides": [8, 16], "pads": [8, 16, 8, 16]}),
    "many channels": ((8, 6, 24, 24), {"strides": [8, 8], "pads": [8, 8, 8, 8]}),
    "windows far apart": ((8, 1, 24, 24), {"strides": [8, 8], "dilations": [2, 2]}),
    "a kernel as large as the steps": ((8, 4, 8, 8), {"strides": [8, 8]}),
    "a kernel smaller than the steps": ((8, 1, 7, 7), {"strides": [8, 8], "output_padding": [1, 1]}),
    "mostly zeros": ((8, 1, 12, 12), {"strides": [8, 8], "pads": [2, 2, 2, 2]}),
    "more pads than there is": ((8, 1, 24, 24), {"strides": [8, 8], "pads": [24, 24, 24, 24]}),
    "few places between steps": ((8, 1, 9, 9), {"strides": [2, 2], "pads": [4, 4, 4, 4], "output_padding": [1, 1]}),
}


@pytest.mark.parametrize("case", UNEVEN)
def test_other_windows_with_strides_stay(case):
    shape, attributes = UNEVEN[case]
    model = model_of(normal(*shape), size=(9, 11), **attributes)
    assert basic_ops(model) == ["ConvTranspose"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
def test_arithmetic_per_channel_goes_into_the_weight(groups):
    outputs = 3 * groups
    normalize = node("BatchNormalization", ["c", "g", "h", "m", "v"], ["d"], epsilon=1e-3)
    rest = [node("Mul", ["d", "k"], ["e"]), node("Add", ["e", "l"], ["y"])]
    constants = {
        **{name: normal(outputs) for name in "ghm"},
        "v": np.abs(normal(outputs)) + np.float32(0.5),
        **{name: normal(outputs, 1, 1) for name in "kl"},
    }
    model = model_of(normal(4, 3, 2, 2), normalize, *rest, constants=constants, group=groups, strides=[2, 2])
    assert basic_ops(model) == ["ConvTranspose"]
    assert_equal_at_levels(model, rtol=1e-4, atol=1e-4)
