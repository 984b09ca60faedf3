"""Kernels on arrays that lie in memory in another order than their axes: beside NumPy, bound and step by step."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.onednn import library as onednn_library

import ort_sdk as ort

onnxruntime = pytest.importorskip("onnxruntime")
node = helper.make_node


def _model(nodes, shape, constants, kind=TensorProto.FLOAT, opset=18):
    infos = [helper.make_tensor_value_info("x", kind, shape)]
    results = [helper.make_tensor_value_info("y", kind, None)]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", infos, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()


def _agree(model, x, **tolerance):
    """Beside onnxruntime, in the first runs and in a program."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (expected,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for _ in range(4):
        (found,) = session.run(None, {"x": x})
        np.testing.assert_allclose(found, expected, **tolerance)


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("by", ["scales", "sizes"])
@pytest.mark.parametrize("is_behind_convolution", [True, False])
def test_resized_pictures(coordinates, mode, by, is_behind_convolution):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 16, 24, 20)).astype(np.float32)
    constants = {
        "w": (rng.standard_normal((40, 16, 3, 3)) / 12).astype(np.float32),
        "scales": np.array([1, 1, 2, 2.5], np.float32) if by == "scales" else np.array([], np.float32),
    }
    if by == "sizes":
        constants["sizes"] = np.array([2, 40 if is_behind_convolution else 16, 48, 31], np.int64)
    source = "c" if is_behind_convolution else "x"
    before = [node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])] if is_behind_convolution else []
    resize = node(
        "Resize", [source, "", *constants.keys() - {"w"}] if by == "scales" else [source, "", "scales", "sizes"], ["r"],
        mode=mode, coordinate_transformation_mode=coordinates,
    )  # fmt: skip
    model = _model([*before, resize, node("Relu", ["r"], ["y"])], x.shape, constants)
    _agree(model, x, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("scales", [(2, 2), (4, 3), (1, 2)])
@pytest.mark.parametrize("samples", [1, 3, 9])
@pytest.mark.parametrize("is_behind_convolution", [True, False])
def test_repeated_pixels(scales, samples, is_behind_convolution):
    rng = np.random.default_rng(6)
    x = rng.standard_normal((samples, 16, 12, 10)).astype(np.float32)
    constants = {"w": rng.standard_normal((24, 16, 1, 1)).astype(np.float32), "s": np.array([1, 1, *scales], np.float32)}
    before = node("Conv", ["x", "w"], ["c"]) if is_behind_convolution else node("Relu", ["x"], ["c"])
    resize = node(
        "Resize", ["c", "", "s"], ["r"], mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    _agree(_model([before, resize, node("Relu", ["r"], ["y"])], x.shape, constants), x, rtol=1e-4, atol=2e-5)


def test_upsampled_integers():
    x = np.arange(2 * 3 * 4 * 5, dtype=np.int32).reshape(2, 3, 4, 5)
    scales = {"scales": np.array([1, 1, 3, 2], np.float32)}
    _agree(_model([node("Upsample", ["x", "scales"], ["y"])], x.shape, scales, TensorProto.INT32, opset=9), x, rtol=0, atol=0)


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
@pytest.mark.parametrize("permutation", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 2, 3, 1), (3, 2, 1, 0)])
def test_softmax_of_columns(axis, permutation):
    x = np.random.default_rng(2).standard_normal((3, 4, 16, 50)).astype(np.float32) * 5
    x[0, 0, 0, 0] = -np.inf
    nodes = [node("Transpose", ["x"], ["t"], perm=permutation), node("Softmax", ["t"], ["y"], axis=axis)]
    _agree(_model(nodes, x.shape, {}), x, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("shape", [(2, 400, 1), (3, 300, 1, 1)])
def test_softmax_of_one_column_each(shape):
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    _agree(_model([node("Softmax", ["x"], ["y"], axis=1)], shape, {}), x, rtol=1e-5, atol=1e-7)


def _lying(x, order):
    """The same numbers, which lie in memory in another order, or not at a multiple of their size."""
    if order == "channels last":
        return np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    if order == "apart":
        return np.repeat(x, 2, axis=3)[..., ::2]
    if order == "unaligned":
        found = np.zeros(x.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(x.shape)
        found[...] = x
        return found
    return x.copy()


@pytest.mark.parametrize("first", ["row-major", "channels last"])
@pytest.mark.parametrize("group", [1, 32])
@pytest.mark.parametrize("is_added", [True, False])
def test_feeds_of_a_program_that_lie_in_another_way_each_time(first, group, is_added):
    rng = np.random.default_rng(9)
    shape = (1, 32, 40, 48)
    constants = {
        "w": (rng.standard_normal((32, 32 // group, 3, 3)) / 12).astype(np.float32),
        "v": (rng.standard_normal((16, 32, 1, 1)) / 6).astype(np.float32),
    }
    nodes = [node("Conv", ["x", "w"], ["c"], pads=[1] * 4, group=group)]
    nodes += [node("Add", ["c", "x"], ["a"]), node("Conv", ["a", "v"], ["y"])] if is_added else [node("Conv", ["c", "v"], ["y"])]
    model = _model(nodes, shape, constants)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    other = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for order in [first] * 5 + ["apart", "row-major", "channels last", "unaligned", first, first]:
        x = rng.standard_normal(shape).astype(np.float32)
        (found,) = session.run(None, {"x": _lying(x, order)})
        np.testing.assert_allclose(found, other.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(not onednn_library.is_available(), reason="oneDNN is not installed")
def test_transposed_convolution_of_a_reversed_picture_that_onednn_refuses():
    onednn_library.library()
    reverse = node("Slice", ["x", "begin", "end", "axis", "step"], ["r"])
    padding = {"pads": [1, 0, 1, 1], "output_padding": [1, 2]}
    spread = node("ConvTranspose", ["r", "w"], ["y"], strides=[2, 3], dilations=[1, 2], group=2, **padding)
    rng = np.random.default_rng(3)
    constants = {"begin": np.array([-1]), "end": np.array([-(2**62)]), "axis": np.array([3]), "step": np.array([-1])}
    constants["w"] = rng.standard_normal((4, 3, 3, 2)).astype(np.float32)
    model = _model([reverse, spread], (2, 4, 5, 6), constants)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    reference = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(5):
        x = rng.standard_normal((2, 4, 5, 6)).astype(np.float32)
        (expected,) = reference.run(None, {"x": x})
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-5)
