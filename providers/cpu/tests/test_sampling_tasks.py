"""GridSample, RoiAlign, TopK and casts of float16 by compiled tasks, beside onnxruntime and NumPy."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

import ort_sdk
from ort_sdk.api import InvalidArgument

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="samples are taken by compiled tasks")
RNG = np.random.default_rng(0)


def _floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def _model(op_type, feeds, outputs, version, constants=None, **attributes):
    constants = constants or {}
    names = [*feeds, *constants]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, list(outputs), **attributes)],
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), [None] * value.ndim)
            for name, value in feeds.items()
        ],
        [helper.make_tensor_value_info(name, element_type, None) for name, element_type in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=9).SerializeToString()


def _compare(model, feeds, tolerance=1e-6):
    """Runs step by step and by program beside onnxruntime."""
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = ort_sdk.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(4):
        for found, wanted in zip(session.run(None, feeds), expected, strict=True):
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
            if tolerance:
                np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * max(np.abs(wanted).max(initial=0), 1))
            else:
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 5, 9, 11), (2, 7, 13, 2)),
        ((1, 1, 1, 1), (1, 40, 20, 2)),
        ((2, 19, 9, 11), (2, 12, 23, 2)),
        ((1, 3, 20, 30), (1, 17, 31, 2)),
    ],
)
def test_grids(mode, padding, align, shapes):
    feeds = {"x": _floats(*shapes[0]), "grid": _floats(*shapes[1])}
    given = {"mode": mode, "padding_mode": padding, "align_corners": align}
    _compare(_model("GridSample", feeds, {"y": TensorProto.FLOAT}, 20, **given), feeds, 2e-6)


def test_images_with_channels_last():
    feeds = {"x": _floats(2, 9, 11, 16).transpose(0, 3, 1, 2), "grid": _floats(2, 13, 20, 2)}
    _compare(_model("GridSample", feeds, {"y": TensorProto.FLOAT}, 20), feeds, 2e-6)


def test_what_is_outside_counts_as_zero_even_beside_infinities():
    feeds = {"x": np.full((1, 2, 8, 8), np.inf, np.float32), "grid": np.full((1, 16, 16, 2), 3, np.float32)}
    session = ort_sdk.InferenceSession(_model("GridSample", feeds, {"y": TensorProto.FLOAT}, 20))
    np.testing.assert_array_equal(session.run(None, feeds)[0], np.zeros((1, 2, 16, 16), np.float32))


def test_coordinates_that_are_no_numbers():
    feeds = {"x": _floats(1, 2, 8, 8), "grid": _floats(1, 16, 16, 2)}
    feeds["grid"][0, ::3] = np.nan
    model = _model("GridSample", feeds, {"y": TensorProto.FLOAT}, 20, padding_mode="border")
    found = ort_sdk.InferenceSession(model).run(None, feeds)[0]
    expected = np.broadcast_to(feeds["x"][:, :, :1, :1], (1, 2, 6, 16))
    np.testing.assert_allclose(found[:, :, ::3], expected, rtol=1e-6)


def test_grids_of_wrong_shapes():
    feeds = {"x": _floats(2, 3, 20, 20), "grid": _floats(1, 20, 20, 2)}
    session = ort_sdk.InferenceSession(_model("GridSample", feeds, {"y": TensorProto.FLOAT}, 16))
    with pytest.raises(InvalidArgument, match="does not fit"):
        session.run(None, feeds)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
@pytest.mark.parametrize("channels", [6, 35])
@pytest.mark.parametrize("pixels", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize(("bins", "scale"), [((7, 7), 1.0), ((2, 5), 0.25), ((1, 1), 1.0)])
def test_regions(mode, ratio, channels, pixels, bins, scale):
    corners = RNG.random((9, 2)) * 30 - 5
    rois = np.concatenate([corners, corners + RNG.random((9, 2)) * 25], 1) / scale
    feeds = {"x": _floats(2, channels, 20, 30), "rois": rois.astype(np.float32), "images": RNG.integers(0, 2, 9)}
    given = {"mode": mode, "sampling_ratio": ratio, "coordinate_transformation_mode": pixels, "spatial_scale": scale}
    given |= {"output_height": bins[0], "output_width": bins[1]}
    _compare(_model("RoiAlign", feeds, {"y": TensorProto.FLOAT}, 16, **given), feeds)


def test_regions_without_pixels_and_of_no_image():
    rois = np.array([[5, 5, 2, 2], [50, 50, 60, 60], [0, 0, 9, 9]], np.float32)
    feeds = {"x": _floats(1, 40, 20, 20), "rois": rois, "images": np.zeros(3, np.int64)}
    model = _model("RoiAlign", feeds, {"y": TensorProto.FLOAT}, 16, output_height=3, output_width=3)
    session = ort_sdk.InferenceSession(model)
    found = session.run(None, feeds)[0]
    assert not found[:2].any()
    assert found[2].all()
    with pytest.raises(InvalidArgument, match="batch indices"):
        session.run(None, feeds | {"images": np.array([0, 1, 0])})


@pytest.mark.parametrize("shape", [(3, 1000, 1), (100, 7, 9), (2, 600, 3), (5, 512, 1), (1, 5000, 1), (4, 4, 300)])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("kind", ["any", "equal", "infinite"])
def test_largest(shape, axis, largest, kind):
    x = _floats(*shape)
    if kind == "equal":
        x = np.copysign(np.abs(np.round(x)), x)
    if kind == "infinite":
        x[RNG.random(shape) < 0.3], x[RNG.random(shape) < 0.1] = -np.inf, np.inf
    for k in {1, shape[axis] // 4, max(shape[axis] // 9, 1)} - {0}:
        given = {"axis": axis, "largest": largest, "constants": {"k": np.array([k])}}
        model = _model("TopK", {"x": x}, {"values": TensorProto.FLOAT, "places": TensorProto.INT64}, 17, **given)
        _compare(model, {"x": x}, 0)


def test_largest_among_what_is_no_number():
    x = _floats(3, 700)
    x[0, :650], x[1, ::2], x[2] = np.nan, np.nan, np.nan
    model = _model("TopK", {"x": x}, {"values": TensorProto.FLOAT, "places": TensorProto.INT64}, 17, {"k": np.array([60])})
    session = ort_sdk.InferenceSession(model)
    order = np.argsort(-x, axis=1, stable=True)[:, :60]
    for _ in range(4):
        values, places = session.run(None, {"x": x})
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("axis", [1, 2])
def test_largest_of_an_array_whose_axes_lie_in_another_order(axis):
    x = _floats(2, 40, 700)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        helper.make_node("TopK", ["t", "k"], ["values", "places"], axis=axis),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info(*each, None) for each in (("values", TensorProto.FLOAT), ("places", TensorProto.INT64))],
        [numpy_helper.from_array(np.array([9]), "k")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    session, permuted = ort_sdk.InferenceSession(model), x.transpose(0, 2, 1)
    order = np.take(np.argsort(-permuted, axis=axis, stable=True), range(9), axis)
    for _ in range(4):
        values, places = session.run(None, {"x": x})
        np.testing.assert_array_equal(places, order)
        np.testing.assert_array_equal(values, np.take_along_axis(permuted, order, axis))


def test_only_values_or_places_are_wanted():
    x = _floats(4, 900)
    model = _model("TopK", {"x": x}, {"values": TensorProto.FLOAT, "places": TensorProto.INT64}, 17, {"k": np.array([5])})
    session, order = ort_sdk.InferenceSession(model), np.argsort(-x, axis=1)[:, :5]
    for _ in range(4):
        np.testing.assert_array_equal(session.run(["places"], {"x": x})[0], order)
        np.testing.assert_array_equal(session.run(["values"], {"x": x})[0], np.take_along_axis(x, order, 1))


@pytest.mark.parametrize(("source", "target"), [(np.float16, np.float32), (np.float32, np.float16)])
@pytest.mark.parametrize("count", [0, 1, 16, 31, 600, 70001])
def test_float16(source, target, count):
    with np.errstate(over="ignore"):
        x = (RNG.standard_normal(count) * 1e3).astype(source)
        special = [np.inf, -np.inf, 1e6, -0.0, 1e-7, 6e-8, 65519, 65520, np.nan, 2049, 2051, 3e-8]
        x[: len(special)] = np.array(special[:count], np.float32).astype(source)
        model = _model(
            "Cast",
            {"x": x},
            {"y": helper.np_dtype_to_tensor_dtype(np.dtype(target))},
            13,
            to=helper.np_dtype_to_tensor_dtype(np.dtype(target)),
        )
        session = ort_sdk.InferenceSession(model)
        for _ in range(4):
            (found,) = session.run(None, {"x": x})
            assert found.dtype == target
            np.testing.assert_array_equal(found, x.astype(target))


@pytest.mark.skipif(instruction_set() < InstructionSet.AVX2, reason="the processor has no instruction for float16")
def test_float16_with_gaps(check):
    for x in (_floats(40, 30).T, _floats(9, 8, 7, 6)[::2]):
        check("Cast", x, to=TensorProto.FLOAT16)
        check("Cast", x.astype(np.float16), to=TensorProto.FLOAT)
