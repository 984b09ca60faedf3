"""Convolutions along one axis: products with overlapping windows."""

import gc
import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.conv.specialized import SpecializedConvKernel
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort
from ort_sdk.testing.collection import only_new_objects

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="products are compiled")


def reference(x, weight, bias, stride, pads):
    signal = np.pad(x.reshape(*x.shape[:2], -1).astype(np.float64), ((0, 0), (0, 0), pads))
    taps = weight.reshape(*weight.shape[:2], -1).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(signal, taps.shape[-1], axis=2)[:, :, ::stride]
    result = np.einsum("nctk,mck->nmt", windows, taps)
    return result + (0 if bias is None else bias[None, :, None])


def spread(array, rank, axis):
    """The last axis as spatial axis ``axis`` of so many."""
    spatial = [1] * (rank - 2)
    spatial[axis] = array.shape[-1]
    return array.reshape(*array.shape[:2], *spatial)


def channels_last(array):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


@pytest.mark.parametrize(("channels", "outputs"), [(1, 1), (1, 32), (1, 250), (5, 64), (24, 31), (64, 96)])
@pytest.mark.parametrize(("rank", "axis"), [(3, 0), (4, 0), (4, 1)])
@pytest.mark.parametrize(
    ("batch", "length", "taps", "stride", "pads"),
    [(1, 500, 40, 7, (0, 0)), (2, 90, 16, 1, (5, 9)), (1, 64, 64, 3, (0, 0)), (3, 100, 17, 50, (0, 3))],
)
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolution(make_kernel, run_both, channels, outputs, rank, axis, batch, length, taps, stride, pads, has_bias):
    rng = np.random.default_rng(0)
    x = spread(rng.standard_normal((batch, channels, length), dtype=np.float32), rank, axis)
    weight = spread(rng.standard_normal((outputs, channels, taps), dtype=np.float32), rank, axis)
    bias = rng.standard_normal(outputs, dtype=np.float32) if has_bias else None
    strides, begins, ends = ([1] * (rank - 2) if fill else [0] * (rank - 2) for fill in (1, 0, 0))
    strides[axis], begins[axis], ends[axis] = stride, *pads
    attributes = {"strides": strides, "pads": [*begins, *ends]}
    expected = reference(x, weight, bias, stride, pads)
    for lying in (x, channels_last(x)):
        given = (lying, weight) if bias is None else (lying, weight, bias)
        constants = tuple(range(1, len(given)))
        kernel = make_kernel("Conv", given, attributes, "", None, constants, ())
        assert isinstance(kernel, SpecializedConvKernel)
        found, bound = run_both("Conv", *given, constants=constants, **attributes)
        for one in (found[0], bound[0]):
            np.testing.assert_allclose(one.reshape(expected.shape), expected, rtol=1e-4, atol=3e-4)


@pytest.mark.parametrize("covered", [2, 3])
@pytest.mark.parametrize(("batch", "length", "taps", "stride", "pads"), [(1, 40, 3, 1, (0, 0)), (2, 21, 5, 2, (2, 1))])
@pytest.mark.parametrize(("outputs", "has_bias"), [(64, False), (64, True), (100, True), (16, False)])
def test_windows_that_cover_an_axis(make_kernel, run_both, covered, batch, length, taps, stride, pads, outputs, has_bias):
    rng, axis = np.random.default_rng(0), 5 - covered
    x = rng.standard_normal((batch, 20, length), dtype=np.float32)
    weight = rng.standard_normal((outputs, 20, taps), dtype=np.float32)
    bias = rng.standard_normal(outputs, dtype=np.float32) if has_bias else None
    expected = reference(x, weight, bias, stride, pads)
    picture, window = (np.ascontiguousarray(np.moveaxis(each[:, None], 2, covered)) for each in (x, weight))
    strides, padding = [1, 1], [0, 0, 0, 0]
    strides[axis - 2], padding[axis - 2], padding[axis] = stride, *pads
    attributes = {"strides": strides, "pads": padding}
    given = (picture, window) if bias is None else (picture, window, bias)
    constants = tuple(range(1, len(given)))
    assert isinstance(make_kernel("Conv", given, attributes, "", None, constants, ()), SpecializedConvKernel)
    found, bound = run_both("Conv", *given, constants=constants, **attributes)
    for one in (found[0], bound[0]):
        assert one.shape[covered] == 1
        np.testing.assert_allclose(one.reshape(expected.shape), expected, rtol=1e-4, atol=3e-4)


@pytest.mark.parametrize(
    ("activation", "parameters", "function"),
    [
        ("Relu", [], lambda y: np.maximum(y, 0)),
        ("LeakyRelu", [0.2], lambda y: np.where(y < 0, 0.2 * y, y)),
        ("Sigmoid", [], lambda y: 1 / (1 + np.exp(-y))),
        ("Tanh", [], np.tanh),
    ],
)
def test_activations(make_kernel, run_both, activation, parameters, function):
    rng = np.random.default_rng(2)
    x, weight = rng.standard_normal((2, 8, 50), dtype=np.float32), rng.standard_normal((32, 8, 3), dtype=np.float32) / 5
    bias = rng.standard_normal(32, dtype=np.float32)
    attributes = {"activation": activation, "pads": [1, 1], **({"activation_params": parameters} if parameters else {})}
    kernel = make_kernel("FusedConv", (x, weight, bias), attributes, "com.microsoft", None, (1, 2), ())
    assert isinstance(kernel, SpecializedConvKernel)
    found, bound = run_both("FusedConv", x, weight, bias, domain="com.microsoft", constants=(1, 2), **attributes)
    expected = function(reference(x, weight, bias, 1, (1, 1)))
    for one in (found[0], bound[0]):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((32, 2, 9), {"group": 2}),
        ((32, 1, 19), {"dilations": [2]}),
        ((32, 1, 19), {"auto_pad": "SAME_UPPER"}),
        ((32, 1, 3), {}),
        ((32, 40, 1), {}),
        ((20, 1, 19), {}),
        ((32, 8, 3, 9), {}),
        ((32, 8, 1, 9), {"pads": [1, 0, 1, 0]}),
    ],
)
def test_others_are_left_to_other_kernels(make_kernel, run_both, shape, attributes):
    rng = np.random.default_rng(1)
    weight = rng.standard_normal(shape, dtype=np.float32)
    channels = shape[1] * attributes.get("group", 1)
    x = rng.standard_normal((1, channels, *(40,) * (len(shape) - 2)), dtype=np.float32)
    kernel = make_kernel("Conv", (x, weight), attributes, "", None, (1,), ())
    assert not isinstance(kernel, SpecializedConvKernel)
    found, bound = run_both("Conv", x, weight, constants=(1,), **attributes)
    np.testing.assert_allclose(bound[0], found[0], rtol=1e-4, atol=1e-5)


def test_pictures_are_left_to_the_other_kernel(run_both):
    rng = np.random.default_rng(3)
    x, weight = rng.standard_normal((1, 8, 6, 40), dtype=np.float32), rng.standard_normal((32, 8, 1, 9), dtype=np.float32)
    found, bound = run_both("Conv", x, weight, constants=(1,))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), 9, axis=3)
    expected = np.einsum("nchwk,mck->nmhw", windows, weight[:, :, 0])
    for one in (found[0], bound[0]):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)


CHANNELS, TAPS = 64, 33


def model_of_two(doc_string):
    """Two convolutions: of a signal, and of its result, whose weight lies as the text shifts it."""
    rng = np.random.default_rng(4)
    shapes = {"w": (CHANNELS, CHANNELS, TAPS), "v": (CHANNELS, 1, TAPS)}
    weights = [numpy_helper.from_array(rng.standard_normal(shape, np.float32) / 8, name) for name, shape in shapes.items()]
    nodes = [helper.make_node("Conv", ["x", "v"], ["h"], doc_string=doc_string), helper.make_node("Conv", ["h", "w"], ["y"])]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, "length"])]
    values += [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", CHANNELS, None]) for name in "hy"]
    graph = helper.make_graph(nodes, "signal", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString(), weights[0]


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("programs", ["0", "1"])
@only_new_objects()
def test_a_weight_is_kept_once_wherever_it_lies(shift, programs):
    model, weight = model_of_two("." * shift)
    options, plain = ort.SessionOptions(), numpy_helper.to_array(weight)
    options.add_session_config_entry("session.disable_programs", programs)
    x = {length: np.random.default_rng(length).standard_normal((1, 1, length), np.float32) for length in (80, 72)}

    def session_and_results():
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return session, [session.run(None, {"x": x[length]}) for length in (80, 80, 80, 72)]

    session_and_results()
    gc.collect()
    tracemalloc.start()
    try:
        _session, found = session_and_results()
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert plain.nbytes <= kept < 1.8 * plain.nbytes
    for hidden, result in found:
        np.testing.assert_allclose(result, reference(hidden, plain, None, 1, (0, 0)), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shift", range(4))
def test_signals_that_the_other_kernel_computes_read_the_weight_as_it_was(shift):
    """Channels of a feed do not lie last."""
    model, weight = model_of_two("." * shift)
    model = onnx.load_from_string(model)
    del model.graph.node[0], model.graph.input[0]
    model.graph.input.append(model.graph.output.pop(0))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(5)
    for length in (100, 100, 100, 60):
        x = rng.standard_normal((1, CHANNELS, length), np.float32)
        expected = reference(x, numpy_helper.to_array(weight), None, 1, (0, 0))
        np.testing.assert_allclose(session.run(None, {"h": x})[0], expected, rtol=1e-4, atol=1e-3)
