"""Convolutions of integers whose inputs have another shape in each run, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.kernel.layouts.channels_last import FEW_SHAPES
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import has_vnni
from ort_sdk_cpu.quantized.conv import dynamic_shapes

import ort_sdk as ort

pytestmark = pytest.mark.skipif(
    not (libraries.compiled_kernels().is_usable and libraries.onednn().is_usable and has_vnni()),
    reason=f"{libraries.compiled_kernels()}; {libraries.onednn()}; VNNI: {has_vnni()}",
)
PICTURES = [(1, 40, 40), (1, 40, 41), (2, 37, 43), (1, 64, 33), (3, 41, 39)]
OUTPUTS = {"q": TensorProto.UINT8, "s": TensorProto.FLOAT, "z": TensorProto.UINT8, "y": TensorProto.INT32, "r": TensorProto.FLOAT}


@pytest.fixture
def counted(monkeypatch):
    """How many convolutions were tried by tasks that take sizes as arguments, and whether they were computed."""
    done = []
    write = dynamic_shapes.DynamicConvInteger.__call__

    def counting(self, *arguments):
        done.append(write(self, *arguments))
        return done[-1]

    monkeypatch.setattr(dynamic_shapes.DynamicConvInteger, "__call__", counting)
    return done


def check(weight, zero_point, spatial, **attributes):
    """Images, or signals of all their elements, quantized by their range."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["y"], kernel_shape=weight.shape[2:], **attributes),
    ]
    constants = {"w": weight, "wz": np.array(zero_point, weight.dtype)}
    compare(nodes, constants, spatial, weight.shape[1] * attributes.get("group", 1))


def compare(nodes, constants, spatial, channels, step=0.0):
    """Both libraries' results of nodes that read x of so many channels: 1 apart at most, between two integers."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [f"x{axis}" for axis in range(2 + spatial)])
    made = {name for node in nodes for name in node.output}
    outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in OUTPUTS.items() if name in made]
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", [x], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_programs", "1")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for batch, height, width in PICTURES:
        shape = (batch, channels, height, width) if spatial > 1 else (batch, channels, height * width)
        fed = {"x": np.random.default_rng(width).standard_normal(shape).astype(np.float32)}
        for found, expected in zip(session.run(None, fed), theirs.run(None, fed), strict=True):
            assert found.dtype == expected.dtype
            difference = np.abs(found - expected)
            assert difference.max() <= step * 1.001
            assert (difference > 0).mean() < 1e-3


def weight_of(kind, *shape):
    bounds = np.iinfo(kind)
    return np.random.default_rng(shape).integers(bounds.min, bounds.max + 1, shape).astype(kind)


@pytest.mark.parametrize(("kind", "zero_point"), [(np.int8, 0), (np.uint8, 128), (np.uint8, 90)])
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((24, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((40, 16, 1, 1), {}),
        ((16, 1, 3, 3), {"group": 16, "pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ((16, 1, 5, 5), {"group": 16, "pads": [2, 0, 1, 2]}),
    ],
)
def test_images(counted, kind, zero_point, shape, attributes):
    check(weight_of(kind, *shape), zero_point, 2, **attributes)
    assert counted == [True] * (len(PICTURES) - FEW_SHAPES)


@pytest.mark.parametrize("group", [1, 12])
def test_signals(counted, group):
    check(weight_of(np.int8, 24 if group == 1 else group, 12 // group, 5), 0, 1, group=group, pads=[2, 2], dilations=[2])
    assert counted == [True] * (len(PICTURES) - FEW_SHAPES)


def test_groups_of_several_channels_stay_with_primitives(counted):
    check(weight_of(np.int8, 32, 8, 3, 3), 0, 2, group=2)
    assert counted == [False] * (len(PICTURES) - FEW_SHAPES)


def test_sums_that_float32_does_not_hold_stay_with_primitives(counted):
    check(np.full((4, 64, 3, 3), 127, np.int8), 0, 2)
    assert not counted


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("kernel", [3, 5])
def test_depthwise_convolutions_of_quantized_images(counted, kind, per_channel, has_bias, kernel):
    channels, rng = 20, np.random.default_rng(3)
    shift = 120 if kind is np.uint8 else -7
    constants = {"s": np.array(0.03, np.float32), "z": np.array(shift, kind), "ys": np.array(0.3, np.float32)}
    constants["w"] = weight_of(np.int8, channels, 1, kernel, kernel)
    constants["ws"] = (rng.random(channels if per_channel else 1) * 0.02 + 0.001).astype(np.float32)
    constants |= {"wz": np.zeros(constants["ws"].shape, np.int8), "b": rng.integers(-900, 900, channels).astype(np.int32)}
    if not has_bias:
        del constants["b"]
    inputs = ["xq", "s", "z", "w", "ws", "wz", "ys", "z", *(["b"] if has_bias else [])]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"]),
        helper.make_node("QLinearConv", inputs, ["yq"], group=channels, pads=[1, 1, 1, 1], strides=[1, 2]),
        helper.make_node("DequantizeLinear", ["yq", "ys", "z"], ["r"]),
    ]
    compare(nodes, constants, 2, channels, step=0.3)
    assert counted == [True] * (len(PICTURES) - FEW_SHAPES)
