"""Convolutions of dynamically quantized tensors with what makes float32 of their sums: fused in programs, beside onnxruntime."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import has_vnni

import ort_sdk as ort

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.compiled_kernels().is_usable or not has_vnni(),
    reason="needs oneDNN, numba and VNNI",
)
node = helper.make_node
RNG = np.random.default_rng(3)


def _model(shape, weight, zero_point, scale, *, bias=None, bounds=(), outputs=("last",), **attributes):
    rank = weight.ndim - 2
    constants = {"w": weight, "wz": zero_point, "ws": scale}
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("ConvInteger", ["q", "w", "z", "wz"], ["sums"], **attributes),
        node("Cast", ["sums"], ["real"], to=TensorProto.FLOAT),
        node("Mul", ["s", "ws"], ["scale"]),
        node("Mul", ["real", "scale"], ["product"]),
    ]
    if bias is not None:
        constants["b"] = bias.reshape(1, -1, *[1] * rank)
        nodes.append(node("Add", ["product", "b"], ["biased"]))
    if bounds == ("relu",):
        nodes.append(node("Relu", [nodes[-1].output[0]], ["rectified"]))
    elif bounds:
        constants |= {"low": np.float32(bounds[0]), "high": np.float32(bounds[1])}
        nodes.append(node("Clip", [nodes[-1].output[0], "low", "high"], ["bounded"]))
    names = [nodes[-1].output[0] if name == "last" else name for name in outputs]
    kinds = [TensorProto.INT32 if name == "sums" else TensorProto.FLOAT for name in names]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)]
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(
        nodes, "graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], results, initializers
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()


def _fused(session):
    return {group for row in session.program_report() for group in row.fused if "ConvInteger" in group}


def _check(model, shape, rtol=1e-6):
    session = ort.InferenceSession(model)
    other = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(4):
        x = (RNG.standard_normal(shape) * RNG.uniform(0.1, 9) + RNG.uniform(-2, 2)).astype(np.float32)
        for found, expected in zip(session.run(None, {"x": x}), other.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * np.abs(expected).max())
    return session


GEOMETRIES = [
    ((1, 3, 20, 22), 70, (3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((2, 16, 9, 11), 24, (3, 3), {"pads": [0, 1, 2, 1]}),
    ((2, 32, 7, 7), 64, (1, 1), {}),
    ((1, 1, 30, 40), 16, (5, 5), {"pads": [2, 2, 2, 2]}),
    ((2, 20, 50), 33, (3,), {"pads": [1, 1]}),
    ((1, 6, 40), 12, (3,), {"dilations": [2]}),
    ((1, 8, 40), 130, (4,), {"dilations": [3], "strides": [2], "pads": [2, 1]}),
    ((1, 256, 6, 6), 65, (3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 7, 130, 130), 9, (3, 2), {}),
]


@pytest.mark.parametrize(("shape", "outputs", "kernel", "attributes"), GEOMETRIES)
@pytest.mark.parametrize(("kind", "zero_point"), [(np.uint8, 128), (np.uint8, 119), (np.int8, 0), (np.int8, -7)])
def test_values_are_onnxruntimes(shape, outputs, kernel, attributes, kind, zero_point):
    limits = np.iinfo(kind)
    weight = RNG.integers(limits.min, limits.max + 1, (outputs, shape[1], *kernel)).astype(kind)
    bias = RNG.standard_normal(outputs).astype(np.float32)
    model = _model(shape, weight, kind(zero_point), np.float32(0.01), bias=bias, bounds=("relu",), **attributes)
    assert _fused(_check(model, shape)) == {("ConvInteger", "Cast", "Mul", "Mul", "Add", "Relu")}


@pytest.mark.parametrize(("options", "group"), [
    ({}, ("ConvInteger", "Cast", "Mul", "Mul")),
    ({"bias": np.arange(5, dtype=np.float32)}, ("ConvInteger", "Cast", "Mul", "Mul", "Add")),
    ({"bounds": (-1.0, 6.0)}, ("ConvInteger", "Cast", "Mul", "Mul", "Clip")),
    ({"bias": np.ones(1, np.float32), "bounds": (-1.0, 2.0)}, ("ConvInteger", "Cast", "Mul", "Mul", "Add", "Clip")),
])  # fmt: skip
@pytest.mark.parametrize("scales", [(), (1,), (1, 5, 1, 1), (5, 1, 1)])
def test_what_follows_the_sums(options, group, scales):
    weight = RNG.integers(-128, 128, (5, 4, 3, 3)).astype(np.int8)
    scale = RNG.uniform(0.001, 0.01, scales).astype(np.float32)
    model = _model((1, 4, 12, 12), weight, np.int8(0), scale, **options)
    assert _fused(_check(model, (1, 4, 12, 12))) == {group}


@pytest.mark.parametrize(
    ("outputs", "group"), [(("sums", "last"), None), (("product", "last"), ("ConvInteger", "Cast", "Mul", "Mul"))]
)
def test_what_others_read_is_made(outputs, group):
    weight = RNG.integers(-128, 128, (5, 4, 3, 3)).astype(np.int8)
    model = _model((1, 4, 12, 12), weight, np.int8(0), np.float32(0.01), bounds=("relu",), outputs=outputs)
    assert _fused(_check(model, (1, 4, 12, 12))) == ({group} if group else set())


def test_scales_along_another_axis_are_left_to_other_kernels():
    weight = RNG.integers(-128, 128, (12, 4, 1, 1)).astype(np.int8)
    model = _model((1, 4, 12, 12), weight, np.int8(0), RNG.random(12).astype(np.float32))
    assert not _fused(_check(model, (1, 4, 12, 12)))


def test_zero_points_of_channels():
    weight = RNG.integers(-128, 128, (12, 8, 3, 3)).astype(np.int8)
    zeros = RNG.integers(-20, 20, 12).astype(np.int8)
    model = _model((1, 8, 12, 12), weight, zeros, np.float32(0.01), bounds=("relu",))
    session = ort.InferenceSession(model)
    x = RNG.standard_normal((1, 8, 12, 12)).astype(np.float32)
    low, high = min(x.min(), 0), max(x.max(), 0)
    scale = np.float32((high - low) / 255)
    zero = np.rint(-low / scale)
    codes = np.clip(np.rint(x / scale) + zero, 0, 255) - zero
    windows = np.lib.stride_tricks.sliding_window_view(codes.astype(np.float64), (3, 3), axis=(2, 3))
    sums = np.einsum("nchwij,mcij->nmhw", windows, weight.astype(np.float64) - zeros[:, None, None, None])
    for _ in range(4):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.maximum(sums * scale * 0.01, 0), rtol=1e-5)
    assert _fused(session)
