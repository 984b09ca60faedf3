"""Convolutions with one filter per channel: against float64, in every layout, with packed weights; in blocks with others."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.conv import inverted_bottleneck
from ort_sdk_cpu.conv.depthwise import DepthwiseKernel
from ort_sdk_cpu.onednn import library as onednn_library
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

pytestmark = pytest.mark.skipif(
    not onednn_library.is_available() or not libraries.compiled_kernels().is_usable, reason="oneDNN or numba is not installed"
)

CASES = [
    ((1, 32, 14, 15), (3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 41, 9, 40), (5, 3), {"pads": [0, 2, 1, 0], "strides": [2, 1]}),
    ((1, 8, 30, 33), (7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 3]}),
    ((3, 96, 8, 8), (1, 3), {"auto_pad": "SAME_UPPER"}),
    ((1, 72, 12, 1), (3, 3), {"pads": [4, 4, 4, 4], "dilations": [2, 3]}),
    ((1, 16, 4, 20), (4, 4), {"strides": [4, 1], "pads": [5, 4, 5, 4]}),
    ((2, 33, 1, 50), (1, 9), {"pads": [0, 4, 0, 4]}),
    ((1, 40, 10, 10), (3, 3), {"dilations": [4, 4], "pads": [4, 4, 4, 4]}),
    ((1, 54, 4, 9, 11), (3, 3, 3), {"pads": [1, 1, 1, 1, 1, 1]}),
    ((2, 33, 5, 8, 14), (3, 3, 5), {"pads": [1, 0, 2, 1, 1, 2], "strides": [1, 2, 2]}),
    ((1, 24, 6, 5, 7), (5, 1, 1), {"pads": [2, 0, 0, 2, 0, 0]}),
    ((1, 8, 7, 9, 6), (2, 3, 4), {"dilations": [3, 2, 1], "strides": [2, 5, 1], "pads": [4, 7, 3, 0, 5, 2]}),
    ((2, 70, 1, 3, 3), (3, 2, 2), {"auto_pad": "SAME_LOWER"}),
]
"""Shape of X, kernel, attributes."""


def random(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def operands(x_shape, kernel, seed=0):
    rng = np.random.default_rng(seed)
    channels = x_shape[1]
    return random(rng, *x_shape), random(rng, channels, 1, *kernel) / np.float32(np.sqrt(np.prod(kernel))), random(rng, channels)


def in_float64(make_kernel, x, w, bias, attributes):
    wide = tuple(array.astype(np.float64) for array in (x, w, bias))
    return make_kernel("Conv", wide, {**attributes, "group": w.shape[0]}, "", None, (), ()).compute(*wide)


@pytest.mark.parametrize(("x_shape", "kernel", "attributes"), CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_shapes_and_layouts(make_kernel, run_both, monkeypatch, x_shape, kernel, attributes, threads):
    for least in ("MINIMUM_WORK", "MINIMUM_WORK_OF_MANY"):
        monkeypatch.setattr(f"ort_sdk_cpu.conv.select.{least}", 0)
    monkeypatch.setattr("ort_sdk_cpu.conv.depthwise.TEAM_WORK", 0)
    monkeypatch.setattr("ort_sdk_cpu.platform.libraries.thread_count", lambda: threads)
    x, w, bias = operands(x_shape, kernel)
    grouped = {**attributes, "group": x_shape[1]}
    assert isinstance(make_kernel("Conv", (x, w, bias), grouped, "", None, (1, 2), ()), DepthwiseKernel)
    expected = in_float64(make_kernel, x, w, bias, attributes)
    channels_last = np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
    for source in (x, channels_last, np.asfortranarray(x)):
        found, bound = run_both("Conv", source, w, bias, constants=(1, 2), **grouped)
        np.testing.assert_allclose(found[0], expected, rtol=1e-5, atol=5e-6)
        np.testing.assert_allclose(bound[0], found[0], rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("channels", [96, 41])
@pytest.mark.parametrize("activation", [("Relu", None), ("LeakyRelu", [0.2]), ("Clip", [0.0, 0.5])])
def test_activations_and_addends(make_kernel, activation, channels):
    name, parameters = activation
    x, w, bias = operands((1, channels, 40, 40), (3, 3))
    added = random(np.random.default_rng(1), 1, channels, 38, 38)
    attributes = {"activation": name, **({} if parameters is None else {"activation_params": parameters}), "group": channels}
    kernel = make_kernel("FusedConv", (x, w, bias, added), attributes, "com.microsoft", None, (1, 2), ())
    total = in_float64(make_kernel, x, w, bias, {}) + added
    slope = parameters[0] if name == "LeakyRelu" else 0
    expected = np.clip(total, 0, 0.5) if name == "Clip" else np.where(total < 0, slope * total, total)
    np.testing.assert_allclose(kernel.compute(x, w, bias, added), expected, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("axes", [2, 3])
def test_packed_weights_and_other_shapes(make_kernel, unaligned_constant, axes):
    deep = (4,) * (axes - 2)
    x, w, bias = operands((1, 50, *deep, 32, 33), (3,) * axes)
    attributes = {"pads": [1] * 2 * axes, "strides": [2] * axes}
    kernel = make_kernel("Conv", (x, w, bias), {**attributes, "group": 50}, "", None, (1, 2), ())

    kernel.use_prepacked(kernel.prepack(unaligned_constant(w), 1, None), 1)
    np.testing.assert_array_equal(kernel.plain_inputs([x, None, bias])[1], w)
    for samples, *size in ((1, 32, 33), (3, 5, 1), (2, 33, 34), (0, 8, 8)):
        other = random(np.random.default_rng(2), samples, 50, *deep, *size)
        expected = in_float64(make_kernel, other, w, bias, attributes)
        np.testing.assert_allclose(kernel.compute(other, None, bias), expected, rtol=1e-5, atol=5e-6)


def value(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def constant(graph_weights, name, array):
    graph_weights.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
    return name


BLOCKS = {
    "expanded and projected": ((1, 24, 28, 28), 144, 24, 3, 1, "Clip"),
    "of a few rows": ((1, 40, 7, 7), 240, 40, 5, 1, "HardSwish"),
    "two samples, step 2": ((2, 16, 17, 19), 96, 33, 3, 2, "Relu"),
    "of a picture": ((1, 3, 64, 50), 32, 16, 3, 1, "Clip"),
    "of a picture, silu": ((2, 3, 33, 47), 40, 24, 3, 2, "Silu"),
    "nothing before": ((1, 64, 30, 30), 64, 128, 3, 1, "Relu"),
    "wide windows": ((1, 16, 28, 28), 64, 48, 7, 1, "Relu"),
}
"""Shape of X, channels of filters, output channels, taps down and across, step, activation."""


def activated(nodes, weights, x, kind):
    if kind == "Silu":
        nodes.append(helper.make_node("Sigmoid", [x], [f"{x}_gate"]))
        nodes.append(helper.make_node("Mul", [x, f"{x}_gate"], [f"{x}_a"]))
    elif kind == "Clip":
        bounds = [constant(weights, f"{x}_{name}", bound) for name, bound in (("low", -0.5), ("high", 1.5))]
        nodes.append(helper.make_node("Clip", [x, *bounds], [f"{x}_a"]))
    else:
        nodes.append(helper.make_node(kind, [x], [f"{x}_a"]))
    return f"{x}_a"


def block_of(x_shape, channels, outputs, taps, step, kind):
    """A model of three convolutions (two where channels stay), with the input added at last if it has the result's shape."""
    rng, nodes, weights = np.random.default_rng(3), [], []

    def convolved(x, name, shape, **attributes):
        w = constant(weights, f"{name}_w", random(rng, *shape) / np.float32(np.sqrt(np.prod(shape[1:]))))
        nodes.append(
            helper.make_node("Conv", [x, w, constant(weights, f"{name}_b", random(rng, shape[0]))], [name], **attributes)
        )
        return name

    inputs, x = x_shape[1], "x"
    if inputs == 3:
        x = activated(nodes, weights, convolved(x, "first", (channels, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]), kind)
    elif channels > inputs:
        x = activated(nodes, weights, convolved(x, "first", (channels, inputs, 1, 1)), kind)
    pads, around = [taps // 2] * 4, {"group": channels, "strides": [step, step]}
    x = activated(nodes, weights, convolved(x, "filters", (channels, 1, taps, taps), pads=pads, **around), kind)
    y = convolved(x, "last", (outputs, channels, 1, 1))
    if inputs == outputs and step == 1:
        nodes.append(helper.make_node("Add", ["x", y], ["sum"]))
        y = "sum"
    graph = helper.make_graph(nodes, "block", [value("x", x_shape)], [value(y, [None] * 4)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS.keys())
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks(monkeypatch, block, threads):
    x_shape = block[0]
    model = block_of(*block)
    options, theirs = ort.SessionOptions(), onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    theirs.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    feed = {"x": random(np.random.default_rng(4), *x_shape)}
    (expected,) = onnxruntime.InferenceSession(model, theirs, providers=["CPUExecutionProvider"]).run(None, feed)
    made = []
    fused = inverted_bottleneck.fused_stages
    monkeypatch.setattr(inverted_bottleneck, "fused_stages", lambda *stages: made.append(fused(*stages)) or made[-1])
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for _ in range(4):
        (found,) = session.run(None, feed)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert any(way is not None for way in made)


def any_size(model):
    """The model with any number of samples of any size."""
    loaded = onnx.load_from_string(model)
    for dim, name in zip(loaded.graph.input[0].type.tensor_type.shape.dim, ("n", None, "h", "w"), strict=True):
        if name:
            dim.dim_param = name
    return loaded.SerializeToString()


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS.keys())
@pytest.mark.parametrize("threads", [1, 2])
def test_blocks_of_any_size(monkeypatch, block, threads):
    written = []
    write = inverted_bottleneck.InvertedBottleneckKernel.write_varying
    monkeypatch.setattr(
        inverted_bottleneck.InvertedBottleneckKernel,
        "write_varying",
        lambda *arguments: written.append(write(*arguments)) or written[-1],
    )
    model, channels = any_size(block_of(*block)), block[0][1]
    options, theirs = ort.SessionOptions(), onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    theirs.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    reference = onnxruntime.InferenceSession(model, theirs, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(5)
    sizes = [(1, 28, 31), (2, 9, 8), (1, 41, 17), (1, 1, 1), (3, 12, 30), (1, 64, 2), (1, 30, 30), (2, 7, 7), (1, 33, 12)]
    for samples, height, width in (*sizes, *reversed(sizes)):
        feed = {"x": random(rng, samples, channels, height, width)}
        (found,), (expected,) = session.run(None, feed), reference.run(None, feed)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert any(written)


def test_blocks_of_any_size_leave_what_does_not_fit_to_their_steps():
    session = ort.InferenceSession(any_size(block_of(*BLOCKS["of a few rows"])), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(6)
    for size in range(7, 16):
        session.run(None, {"x": random(rng, 1, 40, size, 9)})
    (found,) = session.run(None, {"x": random(rng, 0, 40, 8, 8)})
    assert found.shape == (0, 40, 8, 8)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match=r"\[1, 39, 8, 8\]|39"):
        session.run(None, {"x": random(rng, 1, 39, 8, 8)})


def test_what_the_caller_reads_as_well_is_written():
    model = onnx.load_from_string(block_of(*BLOCKS["expanded and projected"]))
    inner = next(node.output[0] for node in model.graph.node if node.op_type == "Clip")
    model.graph.output.append(value(inner, [None] * 4))
    serialized = model.SerializeToString()
    feed = {"x": random(np.random.default_rng(4), *BLOCKS["expanded and projected"][0])}
    expected = onnxruntime.InferenceSession(serialized, providers=["CPUExecutionProvider"]).run(None, feed)
    session = ort.InferenceSession(serialized, providers=["CPUExecutionProvider"])
    for _ in range(4):
        for found, wanted in zip(session.run(None, feed), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("taps", [((3, 3), (3, 3)), ((1, 7), (7, 1)), ((1, 1), (3, 3)), ((3, 3), (1, 1))], ids=str)
@pytest.mark.parametrize("kind", ["", "Relu"])
def test_filters_that_read_filters_are_no_block(monkeypatch, taps, kind):
    made, fused = [], inverted_bottleneck.fused_stages
    monkeypatch.setattr(inverted_bottleneck, "fused_stages", lambda *stages: made.append(fused(*stages)) or made[-1])
    rng, channels, weights, nodes, x = np.random.default_rng(1), 64, [], [], "x"
    for index, kernel in enumerate(taps):
        constant(weights, f"w{index}", random(rng, channels, 1, *kernel))
        pads = [size // 2 for size in kernel] * 2
        nodes.append(helper.make_node("Conv", [x, f"w{index}"], [f"c{index}"], group=channels, pads=pads))
        x = activated(nodes, weights, f"c{index}", kind) if kind else f"c{index}"
    nodes.append(helper.make_node("Add", ["x", x], ["y"]))
    shape = (1, channels, 16, 16)
    graph = helper.make_graph(nodes, "g", [value("x", shape)], [value("y", shape)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session, feeds = ort.InferenceSession(model), {"x": random(rng, *shape)}
    (expected,) = onnxruntime.InferenceSession(model).run(None, feeds)
    for _ in range(6):
        (found,) = session.run(None, feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert made == [None, None]
