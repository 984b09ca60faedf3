"""Convolutions by Winograd's minimal filtering: against float64, in every layout, with and without packed weights."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.conv.winograd import WinogradKernel
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

import ort_sdk
from ort_sdk.api import OrtSdkError

pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.compiled_kernels().is_usable, reason="oneDNN or numba is not installed"
)

MICROSOFT = "com.microsoft"
CASES = [
    ((1, 32, 14, 14), 32, {"pads": [1, 1, 1, 1]}),
    ((2, 17, 7, 9), 40, {"pads": [1, 1, 1, 1]}),
    ((1, 70, 9, 6), 33, {"pads": [0, 2, 1, 0]}),
    ((3, 16, 30, 31), 16, {}),
    ((1, 130, 6, 6), 65, {"auto_pad": "SAME_LOWER"}),
    ((2, 64, 40, 40), 64, {"auto_pad": "SAME_UPPER", "strides": [1, 1], "dilations": [1, 1]}),
    ((1, 16, 6, 7), 16, {"pads": [3, 4, 5, 2]}),
]


def random(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def channels_last(array):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def operands(x_shape, outputs, seed=0):
    rng = np.random.default_rng(seed)
    x, bias = random(rng, *x_shape), random(rng, outputs)
    return x, random(rng, outputs, x_shape[1], 3, 3) / np.float32(3 * np.sqrt(x_shape[1])), bias


def in_float64(make_kernel, x, w, bias, attributes):
    wide = tuple(array.astype(np.float64) for array in (x, w, bias))
    return make_kernel("Conv", wide, attributes, "", None, (), ()).compute(*wide)


@pytest.mark.parametrize(("x_shape", "outputs", "attributes"), CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_shapes_and_layouts(make_kernel, run_both, monkeypatch, x_shape, outputs, attributes, threads):
    monkeypatch.setattr("ort_sdk_cpu.conv.select.MINIMUM_WORK", 0)
    monkeypatch.setattr("ort_sdk_cpu.platform.libraries.thread_count", lambda: threads)
    monkeypatch.setattr("ort_sdk_cpu.conv.select._fills_panels", lambda _outputs: True)
    x, w, bias = operands(x_shape, outputs)
    assert isinstance(make_kernel("Conv", (x, w, bias), attributes, "", None, (1, 2), ()), WinogradKernel)
    expected = in_float64(make_kernel, x, w, bias, attributes)
    for source in (x, channels_last(x), np.asfortranarray(x)):
        found, bound = run_both("Conv", source, w, bias, constants=(1, 2), **attributes)
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=5e-6)
        np.testing.assert_array_equal(bound[0], found[0])


@pytest.mark.parametrize(
    ("activation", "parameters", "function"),
    [
        ("Relu", [], lambda y: np.maximum(y, 0)),
        ("LeakyRelu", [0.25], lambda y: np.where(y > 0, y, y / 4)),
        ("Clip", [-0.5, 0.75], lambda y: np.clip(y, -0.5, 0.75)),
        ("Clip", [], lambda y: y),
        ("", [], lambda y: y),
    ],
)
def test_addends_and_activations(make_kernel, run_both, activation, parameters, function):
    x, w, bias = operands((2, 48, 21, 20), 72)
    attributes = {"pads": [1, 1, 1, 1]}
    expected = in_float64(make_kernel, x, w, bias, attributes)
    added = channels_last(random(np.random.default_rng(1), *expected.shape))
    given = attributes | {"activation": activation, "activation_params": parameters}
    for addend in (added, np.ascontiguousarray(added)):
        found, bound = run_both("FusedConv", x, w, bias, addend, domain=MICROSOFT, constants=(1, 2), **given)
        np.testing.assert_allclose(found[0], function(expected + added), rtol=1e-5, atol=5e-6)
        np.testing.assert_array_equal(bound[0], found[0])


def test_packed_weights_and_other_shapes(make_kernel, unaligned_constant):
    x, w, bias = operands((1, 40, 12, 13), 50)
    kernel = make_kernel("Conv", (x, w, bias), {"pads": [1, 1, 1, 1]}, "", None, (1, 2), ())
    kernel.use_prepacked(kernel.prepack(unaligned_constant(w), 1, None), 1)
    for shape in ((1, 40, 12, 13), (3, 40, 5, 1), (2, 40, 33, 34), (0, 40, 8, 8)):
        other = random(np.random.default_rng(2), *shape)
        expected = in_float64(make_kernel, other, w, bias, {"pads": [1, 1, 1, 1]})
        np.testing.assert_allclose(kernel.compute(other, w, bias), expected, rtol=1e-5, atol=5e-6)
    np.testing.assert_allclose(kernel.plain_inputs([x, w, bias])[1], w, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("sizes", [("h", "w"), (40, "w"), (40, 39)])
def test_half_empty_panels_are_for_pictures_of_any_size(sizes):
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(random(rng, 16, 24, 3, 3), "w")
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 24, *sizes])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [w])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = ort_sdk.InferenceSession(model, providers=["CPUExecutionProvider"])
    (step,) = session._state.plan.steps
    is_known = not any(isinstance(size, str) for size in sizes)
    assert isinstance(step.kernel, WinogradKernel) != (is_known and instruction_set() >= InstructionSet.AVX512)
    other = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for samples in (1, 1, 1, 2):
        feeds = {"x": random(rng, samples, 24, 40, 39)}
        np.testing.assert_allclose(session.run(None, feeds)[0], other.run(None, feeds)[0], rtol=1e-4, atol=1e-4)


def test_weight_of_no_axes_is_refused_in_the_run(make_kernel):
    x, w = np.zeros((1, 32, 8, 8), np.float32), np.zeros((), np.float32)
    kernel = make_kernel("Conv", (x, w), {}, "", None, (1,), ())
    assert not isinstance(kernel, WinogradKernel)
    with pytest.raises(OrtSdkError):
        kernel.compute(x, w)


def test_nan_stays_near(make_kernel):
    x, w, bias = operands((1, 32, 16, 16), 32)
    x[0, 5, 8, 8] = np.nan
    found = make_kernel("Conv", (x, w, bias), {"pads": [1, 1, 1, 1]}, "", None, (1, 2), ()).compute(x, w, bias)
    assert np.isnan(found[0, :, 7:10, 7:10]).all()
    assert np.isfinite(np.delete(found, range(6, 11), axis=2)).all()


@pytest.mark.parametrize("channels", [64, 512])
def test_error_is_less_than_that_of_long_sums(make_kernel, channels):
    x, w, bias = operands((1, channels, 14, 14), 32)
    x, attributes = np.maximum(x, 0), {"pads": [1, 1, 1, 1]}
    expected = in_float64(make_kernel, x, w, bias, attributes)
    found = make_kernel("Conv", (x, w, bias), attributes, "", None, (1, 2), ()).compute(x, w, bias)
    error = np.sqrt(((found - expected) ** 2).mean() / (expected**2).mean())
    assert error < 3e-7
