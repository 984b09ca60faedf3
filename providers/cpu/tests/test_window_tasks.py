"""Windows of images: indices of maxima, nearest pixels, displaced taps, and groups of channels, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))


@pytest.fixture(autouse=True)
def _tasks_for_few_elements(monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.kernel.task_writer.MIN_ELEMENTS", 1)


def _check(nodes, feeds, outputs, constants=(), opset=19, **tolerance):
    infos = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for name, a in feeds.items()]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    weights = [numpy_helper.from_array(array, name) for name, array in constants]
    graph = helper.make_graph(nodes, "graph", infos, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(4):
        for result, wanted in zip(session.run(None, feeds), expected, strict=True):
            assert result.dtype == wanted.dtype
            np.testing.assert_allclose(result, wanted, **(tolerance or {"rtol": 0, "atol": 0}))


def _random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((2, 3, 8, 9), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ((1, 5, 17, 12), {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 1, 1]}),
        ((1, 5, 17, 12), {"kernel_shape": [3, 2], "dilations": [2, 3], "storage_order": 1}),
        ((2, 4, 33), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
        ((1, 2, 6, 6, 6), {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]}),
    ],
)
@pytest.mark.parametrize("is_repeated", [True, False])
def test_places_of_maxima(shape, attributes, is_repeated):
    x = np.round(_random(*shape)) if is_repeated else _random(*shape)
    _check([helper.make_node("MaxPool", ["x"], ["y", "places"], **attributes)], {"x": x}, {"y": 1, "places": 7})


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.int8])
@pytest.mark.parametrize("scales", [(2, 2), (3, 2), (1.5, 2.25), (0.4, 0.5), (1, 2), (2, 1)])
@pytest.mark.parametrize("rounding", ["floor", "round_prefer_floor", "ceil"])
def test_nearest_pixels(dtype, scales, rounding):
    x = (_random(2, 3, 10, 21) * 40).astype(dtype)
    node = helper.make_node(
        "Resize", ["x", "", "s"], ["y"], mode="nearest", nearest_mode=rounding, coordinate_transformation_mode="asymmetric"
    )
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    _check([node], {"x": x}, {"y": kind}, [("s", np.array([1, 1, *scales], np.float32))])
    permuted = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node(
            "Resize", ["t", "", "s"], ["y"], mode="nearest", nearest_mode=rounding, coordinate_transformation_mode="asymmetric"
        ),
    ]
    _check(permuted, {"x": x}, {"y": kind}, [("s", np.array([1, 1, *scales], np.float32))])


@pytest.mark.parametrize("version", [18, 21])
@pytest.mark.parametrize(("shape", "groups"), [((2, 6, 5, 7), 3), ((1, 8, 33), 8), ((3, 4, 6, 6), 1), ((2, 32, 20, 20), 4)])
def test_groups_of_channels(version, shape, groups):
    count = groups if version == 18 else shape[1]
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=groups, epsilon=1e-4)
    constants = [("s", _random(count, seed=1)), ("b", _random(count, seed=2))]
    x = _random(*shape) * 3 + 5
    expected_by_float64(node, x, *[array for _, array in constants], groups, version)


def expected_by_float64(node, x, scale, shift, groups, version):
    rows = x.astype(np.float64).reshape(len(x), groups, -1)
    rows = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-4)
    per = x.shape[1] // len(scale)
    broadcast = [np.repeat(array, per).reshape(1, -1, *[1] * (x.ndim - 2)) for array in (scale, shift)]
    expected = rows.reshape(x.shape) * broadcast[0] + broadcast[1]
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", 1, x.shape)],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(scale, "s"), numpy_helper.from_array(shift, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9).SerializeToString()
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(4):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("channels", "outputs", "attributes"),
    [
        (4, 6, {"pads": [1, 1, 1, 1]}),
        (20, 5, {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
        (8, 4, {"group": 2, "offset_group": 2, "dilations": [2, 2]}),
        (32, 8, {"offset_group": 4, "group": 4, "pads": [1, 1, 1, 1]}),
    ],
)
@pytest.mark.parametrize("has_mask", [True, False])
@pytest.mark.parametrize("samples", [1, 3])
def test_displaced_taps(channels, outputs, attributes, has_mask, samples):
    x, weight = _random(samples, channels, 9, 11), _random(outputs, channels // attributes.get("group", 1), 3, 3)
    pads, (down, right) = attributes.get("pads", [0] * 4), attributes.get("strides", [1, 1])
    reach = 2 * attributes.get("dilations", [1, 1])[0]
    rows, columns = (9 + pads[0] + pads[2] - reach - 1) // down + 1, (11 + pads[1] + pads[3] - reach - 1) // right + 1
    taps = 9 * attributes.get("offset_group", 1)
    feeds = {"x": x, "o": _random(samples, 2 * taps, rows, columns, seed=1) * 2}
    constants = [("w", weight), ("b", _random(outputs, seed=3))]
    if has_mask:
        feeds["m"] = np.abs(_random(samples, taps, rows, columns, seed=2))
    node = helper.make_node(
        "DeformConv", ["x", "w", "o", "b", *(["m"] if has_mask else [])], ["y"], kernel_shape=[3, 3], **attributes
    )
    _check([node], feeds, {"y": 1}, constants, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_displaced_taps_between_convolutions(groups):
    weights = {"v": (16, 8, 1, 1), "o": (18, 16, 3, 3), "m": (9, 16, 3, 3), "d": (16, 16 // groups, 3, 3), "y": (12, 16, 1, 1)}
    constants = [(f"w{name}", _random(*shape, seed=seed) / 4) for seed, (name, shape) in enumerate(weights.items())]
    around = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "wv"], ["v"]),
        *(helper.make_node("Conv", ["v", f"w{name}"], [name], **around) for name in "om"),
        helper.make_node("Sigmoid", ["m"], ["s"]),
        helper.make_node("DeformConv", ["v", "wd", "o", "", "s"], ["d"], group=groups, **around),
        helper.make_node("Relu", ["d"], ["r"]),
        helper.make_node("Conv", ["r", "wy"], ["y"]),
    ]
    _check(nodes, {"x": _random(2, 8, 40, 41)}, {"d": 1, "y": 1}, constants, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("displacement", [np.nan, np.inf, -np.inf, 1e30, -1e30, 11.5])
@pytest.mark.parametrize("factor", [1.0, np.inf, np.nan])
def test_taps_displaced_out_of_the_image(displacement, factor):
    offsets, factors = _random(1, 18, 9, 11, seed=1), np.ones((1, 9, 9, 11), np.float32)
    offsets[0, 4:6, 3] = displacement
    factors[0, 2, 3] = factor
    feeds = {"x": _random(1, 4, 9, 11), "o": offsets, "m": factors}
    node = helper.make_node("DeformConv", ["x", "w", "o", "", "m"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    _check([node], feeds, {"y": 1}, [("w", _random(6, 4, 3, 3))], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 2, 2], "strides": [2, 2, 2]},
        {"kernel_shape": [3, 3, 3], "pads": [1, 1, 1, 1, 1, 1]},
        {"kernel_shape": [3, 2, 5], "strides": [2, 1, 3], "pads": [1, 0, 2, 0, 1, 2]},
        {"kernel_shape": [1, 3, 3], "strides": [1, 2, 2], "pads": [0, 1, 1, 0, 1, 1], "ceil_mode": 1},
    ],
)
@pytest.mark.parametrize("shape", [(1, 2, 8, 8, 8), (2, 3, 7, 20, 19)])
def test_films(op_type, attributes, shape):
    node = helper.make_node(op_type, ["x"], ["y"], **attributes)
    _check([node], {"x": _random(*shape)}, {"y": 1}, rtol=1e-6, atol=1e-6)


def test_dilated_films():
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 3, 2], dilations=[3, 2, 2], pads=[1, 1, 0, 1, 1, 1])
    _check([node], {"x": _random(2, 3, 9, 20, 19)}, {"y": 1})


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("index_type", [np.int64, np.int32])
def test_elements_put_along_an_axis(dtype, axis, index_type):
    rng = np.random.default_rng(0)
    x, updates = ((rng.standard_normal((6, 7, 20)) * 50).astype(dtype) for _ in range(2))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [
        helper.make_node("Add", ["x", "x"], ["w"]),
        helper.make_node("ScatterElements", ["w", "i", "u"], ["t"], axis=axis),
        helper.make_node("Add", ["t", "t"], ["y"]),
    ]
    indices = np.argsort(rng.random(x.shape), axis=axis).astype(index_type)
    indices.flat[::3] -= x.shape[axis]
    _check(nodes, {"x": x, "i": indices, "u": updates}, {"y": kind})
