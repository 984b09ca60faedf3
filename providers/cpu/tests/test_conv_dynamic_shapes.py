"""Convolutions of inputs whose shape is another in each run, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.conv import direct
from ort_sdk_cpu.conv.im2row import dynamic_shapes
from ort_sdk_cpu.gemm.overlapping_rows import OverlappingRows, OverlappingRowsGemm
from ort_sdk_cpu.kernel.activation import Activation, ActivationKind
from ort_sdk_cpu.kernel.layouts.channels_last import FEW_SHAPES
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

MICROSOFT = "com.microsoft"
pytestmark = pytest.mark.skipif(
    not (libraries.compiled_kernels().is_usable and libraries.onednn().is_usable),
    reason=f"{libraries.compiled_kernels()}; {libraries.onednn()}",
)


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def value(name, rank):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"{name}{axis}" for axis in range(rank)])


def model_of(nodes, constants, inputs, rank):
    """A convolution that oneDNN takes whatever its size makes data channels last for those that follow."""
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", [value(name, rank) for name in inputs], [value("y", rank)], weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def sessions(model):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_programs", "1")
    theirs = onnxruntime.SessionOptions()
    theirs.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return (
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]),
        onnxruntime.InferenceSession(model, theirs, providers=["CPUExecutionProvider"]),
    )


@pytest.fixture
def counted(monkeypatch):
    """How many convolutions were computed by tasks that take sizes as arguments."""
    done = []
    write = dynamic_shapes.DynamicConvolution.__call__

    def counting(self, *arguments):
        is_done = write(self, *arguments)
        done.append(is_done)
        return is_done

    run = direct.TaskPlan.run

    def counting_tasks(*arguments):
        run(*arguments)
        done.append(True)

    monkeypatch.setattr(dynamic_shapes.DynamicConvolution, "__call__", counting)
    monkeypatch.setattr(direct.TaskPlan, "run", counting_tasks)
    return done


def check(model, feeds):
    ours, theirs = sessions(model)
    for fed in feeds:
        (found,), (expected,) = ours.run(None, fed), theirs.run(None, fed)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5 * np.abs(expected).max())


PICTURES = [(1, 40, 40), (1, 40, 41), (2, 37, 43), (1, 64, 33), (3, 41, 39)]


@pytest.mark.parametrize("columns", [1, 16, 70])
@pytest.mark.parametrize("channels", [8, 100])
def test_pointwise(counted, channels, columns):
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"])
    constants = {"w": random(columns, channels, 1, 1), "b": random(columns)}
    feeds = [{"x": random(batch, channels, height, width)} for batch, height, width in PICTURES * 2]
    check(model_of([node], constants, "x", 4), [feed for feed in feeds if feed["x"].size * columns >= 1 << 20] or feeds)
    assert all(counted)


@pytest.mark.parametrize(
    ("channels", "attributes"),
    [
        (16, {"pads": [1, 1, 1, 1]}),
        (64, {"pads": [2, 1, 0, 1], "strides": [2, 1]}),
        (88, {"dilations": [2, 3], "pads": [4, 4, 4, 4]}),
        (70, {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        (130, {"auto_pad": "VALID"}),
    ],
)
@pytest.mark.parametrize("has_bias", [False, True])
def test_one_filter_per_channel(counted, channels, attributes, has_bias):
    first = helper.make_node("Conv", ["x", "e"], ["h"])
    names = ["h", "w", "b"] if has_bias else ["h", "w"]
    node = helper.make_node("Conv", names, ["y"], group=channels, **attributes)
    constants = {"e": random(channels, 32, 1, 1) / 6, "w": random(channels, 1, 3, 3), "b": random(channels)}
    model = model_of([first, node], constants if has_bias else {name: constants[name] for name in "ew"}, "x", 4)
    check(model, [{"x": random(batch, 32, height, width)} for batch, height, width in PICTURES])
    assert counted == [True] * 2 * (len(PICTURES) - FEW_SHAPES)


def test_one_spatial_axis(counted):
    nodes = [
        helper.make_node("Conv", ["x", "e"], ["h"]),
        helper.make_node("Conv", ["h", "w"], ["y"], group=48, kernel_shape=[5], auto_pad="SAME_UPPER", strides=[2]),
    ]
    model = model_of(nodes, {"e": random(48, 40, 1), "w": random(48, 1, 5)}, "x", 3)
    check(model, [{"x": random(2, 40, length)} for length in (600, 601, 602, 777, 801)])
    assert counted == [True] * 6


ACTIVATIONS = [
    ("Relu", []),
    ("LeakyRelu", [0.2]),
    ("Sigmoid", []),
    ("Tanh", []),
    ("Clip", [-0.5, 1.5]),
    ("HardSigmoid", [0.3, 0.4]),
    ("HardSwish", []),
]


@pytest.mark.parametrize(("activation", "parameters"), ACTIVATIONS)
@pytest.mark.parametrize("is_depthwise", [False, True])
def test_activations(counted, activation, parameters, is_depthwise):
    extra = {"activation_params": parameters} if parameters else {}
    shape, group = ((64, 1, 3, 3), 64) if is_depthwise else ((32, 64, 1, 1), 1)
    nodes = [
        helper.make_node("Conv", ["x", "e"], ["h"]),
        helper.make_node("FusedConv", ["h", "w", "b"], ["y"], domain=MICROSOFT, group=group, activation=activation, **extra),
    ]
    model = model_of(nodes, {"e": random(64, 32, 1, 1) / 6, "w": random(*shape) / 8, "b": random(shape[0])}, "x", 4)
    check(model, [{"x": random(batch, 32, height, width)} for batch, height, width in PICTURES])
    is_left = is_depthwise and activation == "Tanh"
    assert counted == [True] * (1 if is_left else 2) * (len(PICTURES) - FEW_SHAPES)


@pytest.mark.parametrize(
    "gate",
    [
        [helper.make_node("Sigmoid", ["h"], ["g"]), helper.make_node("Mul", ["h", "g"], ["y"])],
        [helper.make_node("HardSigmoid", ["h"], ["g"], alpha=1 / 6, beta=0.5), helper.make_node("Mul", ["h", "g"], ["y"])],
        [helper.make_node("HardSigmoid", ["h"], ["g"], alpha=0.2, beta=0.4), helper.make_node("Mul", ["h", "g"], ["y"])],
    ],
    ids=["Swish", "HardSwish", "another HardSwish"],
)
def test_gates_behind_windows(counted, gate):
    node = helper.make_node("Conv", ["x", "w", "b"], ["h"], strides=[2, 2], pads=[1, 1, 1, 1])
    model = model_of([node, *gate], {"w": random(40, 32, 3, 3) / 16, "b": random(40)}, "x", 4)
    ours, theirs = (runtime.InferenceSession(model, providers=["CPUExecutionProvider"]) for runtime in (ort, onnxruntime))
    for width in range(40, 49):
        fed = {"x": random(2, 32, 41, width)}
        (found,), (expected,) = ours.run(None, fed), theirs.run(None, fed)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)
    assert counted[-1]


@pytest.mark.parametrize(("alpha", "beta", "is_done"), [(1 / 6, 0.5, True), (0.2, 0.5, False), (1 / 6, 0.4, False)])
def test_only_the_standard_hard_swish_is_done_in_place(alpha, beta, is_done):
    assert dynamic_shapes._is_in_place(Activation(ActivationKind.HARD_SWISH, alpha, beta)) == is_done


def test_what_is_added(counted):
    nodes = [
        helper.make_node("Conv", ["x", "e"], ["h"]),
        helper.make_node(
            "FusedConv", ["h", "w", "b", "z"], ["y"], domain=MICROSOFT, activation="Clip", activation_params=[-1.0, 1.0]
        ),
    ]
    model = model_of(nodes, {"e": random(64, 32, 1, 1) / 6, "w": random(24, 64, 1, 1) / 8, "b": random(24)}, "xz", 4)
    feeds = [{"x": random(b, 32, h, w), "z": random(b, 24, h, w, seed=1)} for b, h, w in PICTURES]
    check(model, feeds)
    assert counted == [True] * 6


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ((3, 3), {"pads": [1, 1, 1, 1]}),
        ((3, 3), {"strides": [2, 2], "pads": [0, 1, 2, 0]}),
        ((1, 3), {"pads": [0, 1, 0, 1]}),
        ((1, 5), {}),
        ((5, 1), {"dilations": [3, 1], "strides": [1, 3]}),
        ((2, 7), {"auto_pad": "SAME_LOWER", "strides": [3, 2]}),
        ((1, 1), {"strides": [2, 2]}),
        ((1, 1), {"pads": [1, 2, 0, 3]}),
        ((3, 3), {"dilations": [1, 2], "pads": [1, 2, 1, 2]}),
        ((2, 4), {"dilations": [3, 5], "strides": [2, 1], "pads": [0, 3, 2, 1]}),
        ((1, 2), {"dilations": [1, 7]}),
    ],
)
@pytest.mark.parametrize("channels", [3, 12])
def test_windows_of_all_channels(counted, kernel, attributes, channels):
    nodes = [
        helper.make_node("Conv", ["x", "e"], ["h"]),
        helper.make_node("Conv", ["h", "w", "b"], ["y"], **attributes),
    ]
    constants = {"e": random(channels, 32, 1, 1) / 6, "w": random(40, channels, *kernel), "b": random(40)}
    check(
        model_of(nodes, constants, "x", 4),
        [{"x": random(batch, 32, height, width)} for batch, height, width in PICTURES],
    )
    assert all(counted)
    assert len(counted) >= len(PICTURES) - FEW_SHAPES


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("kernel", [(1, 1), (2, 2), (1, 3)])
@pytest.mark.parametrize("channels", [1, 3, 8])
def test_few_numbers_in_narrow_pictures(op_type, kernel, channels):
    shape = (20, channels, *kernel) if op_type == "Conv" else (channels, 20, *kernel)
    node = helper.make_node(op_type, ["x", "w", "b"], ["y"], strides=list(kernel) if op_type == "ConvTranspose" else [2, 1])
    feeds = [{"x": random(batch, channels, 9, width)} for width in (3, 4, 5, 6) for batch in (1, 2)]
    check(model_of([node], {"w": random(*shape), "b": random(20)}, "x", 4), feeds)


@pytest.mark.parametrize("rows", [1, 2, 4, 5])
@pytest.mark.parametrize("inner", [1, 2, 8, 15, 16, 17, 33])
def test_products_of_any_length(rows, inner):
    a, b, out = random(3, rows, inner), random(37, inner), np.full((3, rows, 37), np.nan, np.float32)
    row = inner * a.itemsize
    stack = OverlappingRows(count=3, rows=rows, row_bytes=row, step_bytes=rows * row, out_step_bytes=rows * 37 * out.itemsize)
    OverlappingRowsGemm(b, Workspace())(stack, a, None, out)
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [4, 0]},
        {"pads": [0, 7], "strides": [3]},
        {},
        {"dilations": [5], "pads": [20, 20]},
        {"dilations": [30], "pads": [120, 120]},
    ],
)
def test_windows_of_a_signal(counted, attributes):
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)
    model = model_of([node], {"w": random(64, 24, 9) / 10, "b": random(64)}, "x", 3)
    check(model, [{"x": random(batch, 24, length)} for batch, length in ((1, 600), (1, 601), (2, 602), (1, 777), (3, 801))])
    assert counted == [True] * 3


def test_a_residual_that_is_added_last(counted, monkeypatch):
    monkeypatch.setattr("ort_sdk.run.program.shape_generic.RUNS_BEFORE_FUSING", 1)
    nodes = [
        helper.make_node("LeakyRelu", ["x"], ["r"], alpha=0.1),
        helper.make_node("Conv", ["r", "w", "b"], ["c"], dilations=[3], pads=[6, 6]),
        helper.make_node("Add", ["c", "x"], ["y"]),
    ]
    model = model_of(nodes, {"w": random(32, 32, 5) / 10, "b": random(32)}, "x", 3)
    ours, theirs = (library.InferenceSession(model, providers=["CPUExecutionProvider"]) for library in (ort, onnxruntime))
    for length in range(600, 608):
        fed = {"x": random(1, 32, length)}
        np.testing.assert_allclose(ours.run(None, fed)[0], theirs.run(None, fed)[0], rtol=1e-5, atol=2e-5)
    assert counted[-3:] == [True] * 3


@pytest.mark.parametrize("kernel", [(2, 2), (3, 1), (1, 2)])
@pytest.mark.parametrize("batch", [1, 2])
def test_elements_spread_to_windows(counted, kernel, batch):
    nodes = [
        helper.make_node("Conv", ["x", "e"], ["h"]),
        helper.make_node("ConvTranspose", ["h", "w", "b"], ["y"], strides=list(kernel)),
    ]
    constants = {"e": random(24, 32, 1, 1) / 6, "w": random(24, 20, *kernel), "b": random(20)}
    feeds = [{"x": random(batch, 32, 40, width)} for width in (40, 41, 42, 57)]
    check(model_of(nodes, constants, "x", 4), feeds)
    assert counted == [True] * 4


@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((3, 5), {"strides": [1, 3], "pads": [2, 0, 0, 4]}),
        ((2, 3), {"strides": [3, 1]}),
        ((3, 2), {}),
    ],
)
@pytest.mark.parametrize("activation", ["", "LeakyRelu"])
def test_windows_that_overlap(counted, kernel, attributes, activation):
    nodes = [helper.make_node("Conv", ["x", "e"], ["h"]), helper.make_node("ConvTranspose", ["h", "w", "b"], ["t"], **attributes)]
    nodes.append(helper.make_node(activation or "Identity", ["t"], ["y"]))
    constants = {"e": random(24, 32, 1, 1) / 6, "w": random(24, 20, *kernel), "b": random(20)}
    check(
        model_of(nodes, constants, "x", 4), [{"x": random(b, 32, 40, width)} for b, width in ((1, 40), (2, 41), (3, 7), (1, 57))]
    )
    assert counted == [True] * 4


@pytest.mark.parametrize(("taps", "attributes"), [(16, {"strides": [8], "pads": [4, 4]}), (5, {"strides": [2], "pads": [0, 3]})])
def test_overlapping_windows_of_a_signal(counted, taps, attributes):
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)
    model = model_of([node], {"w": random(64, 32, taps) / 10, "b": random(32)}, "x", 3)
    check(model, [{"x": random(batch, 64, length)} for batch, length in ((1, 40), (1, 41), (2, 42), (1, 1), (3, 801))])
    assert counted == [True] * 3


@pytest.mark.parametrize(
    ("op_type", "shape", "attributes"),
    [
        ("Conv", (16, 16, 3, 3), {"group": 2}),
        ("Conv", (16, 32, 3, 3), {"dilations": [1, 2], "strides": [1, 2]}),
        ("ConvTranspose", (32, 16, 3, 3), {"strides": [2, 2], "dilations": [2, 1]}),
        ("ConvTranspose", (32, 16, 2, 2), {"strides": [3, 3], "output_padding": [2, 2]}),
    ],
)
def test_other_convolutions_stay_with_primitives(counted, op_type, shape, attributes):
    node = helper.make_node(op_type, ["x", "w"], ["y"], **attributes)
    check(
        model_of([node], {"w": random(*shape)}, "x", 4),
        [{"x": random(batch, 32, height, width)} for batch, height, width in PICTURES],
    )
    assert not any(counted)


def test_means_of_all_pixels():
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"]), helper.make_node("GlobalAveragePool", ["h"], ["y"])]
    check(
        model_of(nodes, {"w": random(70, 32, 1, 1)}, "x", 4),
        [{"x": random(batch, 32, height, width)} for batch, height, width in PICTURES],
    )
