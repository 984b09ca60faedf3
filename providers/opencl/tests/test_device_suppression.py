"""NonMaxSuppression on the device layer against a plain search and onnxruntime, with kernels for processors and for GPUs."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import InvalidArgument, KernelInfo, NodeArg
from ort_sdk.device.boxes import suppression
from ort_sdk.device.operators.overrides import overridden

from .device_contexts import CLASSES, host, launches_of, namespace

pytestmark = pytest.mark.opencl


@pytest.fixture(params=CLASSES)
def xp(request):
    return namespace(request.param)


def _corners(box, *, centered):
    first, second = box[:2], box[2:]
    if centered:
        return first - second / np.float32(2), first + second / np.float32(2)
    return np.minimum(first, second), np.maximum(first, second)


def _overlap(one, other, *, centered):
    (low, high), (other_low, other_high) = (_corners(each, centered=centered) for each in (one, other))
    sides = np.minimum(high, other_high) - np.maximum(low, other_low)
    area, other_area = np.prod(high - low), np.prod(other_high - other_low)
    if not min(*sides, area, other_area) > 0:
        return np.float32(0)
    return np.prod(sides) / (area + other_area - np.prod(sides))


def _expected(boxes, scores, most, share, bound=None, *, centered=False):
    """Rows (batch, class, box), by looking at all boxes one after the other."""
    rows = []
    for batch, category in np.ndindex(scores.shape[:2]):
        own, kept = scores[batch, category], []
        for box in np.argsort(-own, kind="stable"):
            if len(kept) < most and (bound is None or own[box] > np.float32(bound)):
                shares = [_overlap(boxes[batch, other], boxes[batch, box], centered=centered) for other in kept]
                if not any(each > np.float32(share) for each in shares):
                    kept.append(box)
        rows += [(batch, category, box) for box in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


def _operator(xp, *, centered=False):
    attributes = {"center_point_box": int(centered)}
    inputs = tuple(NodeArg(name, "tensor(float)", None) for name in ("boxes", "scores"))
    info = KernelInfo("NonMaxSuppression", 11, "", attributes=attributes, inputs=inputs)

    def shared(*_inputs):
        raise AssertionError("the operator of the host")

    return overridden(info, xp, shared)


def _kept(xp, boxes, scores, most, share, bound=None, *, centered=False):
    given = [np.array([most]), np.float32([share]), None if bound is None else np.float32([bound])]
    found = _operator(xp, centered=centered)(xp.from_host(boxes), xp.from_host(scores), *given)
    assert found.dtype == np.int64
    return host(found)


def _random(batches, classes, count, seed=0):
    """Boxes of which some have no area, and scores of which many are equal."""
    generator = np.random.default_rng(seed)
    boxes = generator.random((batches, count, 4), dtype=np.float32) * 10
    boxes[:, ::7, 2] = boxes[:, ::7, 0]
    return boxes, np.round(generator.standard_normal((batches, classes, count)), 1).astype(np.float32)


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize(
    ("most", "share", "bound"),
    [(10, 0.45, 0.3), (3, 0.5, None), (10000, 0.9, 0.2), (7, 0.0, 0.5), (40, 1.0, None), (5, 0.5, 2.0), (5, 0.5, 9.0)],
)
@pytest.mark.parametrize(("batches", "classes", "count"), [(1, 5, 100), (2, 3, 33), (3, 2, 1), (1, 1, 300)])
def test_kept_boxes(xp, batches, classes, count, most, share, bound, centered):
    boxes, scores = _random(batches, classes, count, count)
    found = _kept(xp, boxes, scores, most, share, bound, centered=centered)
    np.testing.assert_array_equal(found, _expected(boxes, scores, most, share, bound, centered=centered))


def test_arrays_with_strides(xp):
    boxes, scores = _random(2, 3, 40)
    turned = [xp.permute_dims(xp.from_host(np.ascontiguousarray(each.transpose(0, 2, 1))), (0, 2, 1)) for each in (boxes, scores)]
    found = _operator(xp)(*turned, np.array([5]), np.float32([0.4]), np.float32([0.2]))
    np.testing.assert_array_equal(host(found), _expected(boxes, scores, 5, 0.4, 0.2))


def test_numbers_that_are_none(xp):
    boxes = np.float32([[[0, 0, 1, 1], [0, 5, 1, 6], [5, 0, 6, 1], [5, 5, 6, 6]]])
    scores = np.float32([[[np.nan, -np.inf, np.inf, -0.0]]])
    assert _kept(xp, boxes, scores, 4, 0.5)[:, 2].tolist() == [2, 3, 1, 0]
    assert _kept(xp, boxes, scores, 4, 0.5, -1)[:, 2].tolist() == [2, 3]
    # boxes of NaN and of infinite size overlap with nothing
    for odd in (np.nan, np.inf):
        boxes = np.float32([[[0, 0, 1, odd], [0, 0, 1, odd], [0, 0, 1, 1], [0, 0, 1, 1.1]]])
        found = _kept(xp, boxes, np.float32([[[4, 3, 2, 1]]]), 4, 0.5)
        np.testing.assert_array_equal(found[:, 2], [0, 1, 2])


def test_of_equal_scores_the_earlier_box_is_better(xp):
    boxes = np.tile(np.float32([[0, 0, 1, 1], [0, 5, 1, 6]]), (1, 60, 1))
    scores = np.zeros((1, 1, 120), np.float32)
    scores[..., 1::2] = -0.0
    assert _kept(xp, boxes, scores, 9, 0.5)[:, 2].tolist() == [0, 1]
    assert _kept(xp, boxes, scores, 120, 1.0)[:, 2].tolist() == list(range(120))


@pytest.mark.parametrize("share", [0.5, 0.25, 0.2, 1 / 3])
def test_a_share_that_is_equal_is_not_above(xp, share):
    width = 2 * np.float32(share) / (1 + np.float32(share))
    boxes = np.float32([[[0, 0, 1, 1], [0, 1 - width, 1, 2 - width], [0, 0, 1, share], [0, 0, 3, 1]]])
    scores = np.float32([[[4, 3, 2, 1]]])
    for bound in (
        np.nextafter(np.float32(share), np.float32(0)),
        np.float32(share),
        np.nextafter(np.float32(share), np.float32(1)),
    ):
        np.testing.assert_array_equal(_kept(xp, boxes, scores, 4, bound), _expected(boxes, scores, 4, bound))


@pytest.mark.parametrize("most", [0, -1, None])
def test_nothing_is_kept(xp, most):
    boxes, scores = (xp.from_host(np.ones(shape, np.float32)) for shape in ((1, 3, 4), (1, 2, 3)))
    found = _operator(xp)(boxes, scores, None if most is None else np.array([most]), np.float32([0.5]))
    assert found.shape == (0, 3)
    assert found.dtype == np.int64


@pytest.mark.parametrize(("batches", "classes", "count"), [(0, 2, 3), (1, 0, 3), (1, 2, 0)])
def test_there_are_no_boxes(xp, batches, classes, count):
    boxes, scores = np.ones((batches, count, 4), np.float32), np.ones((batches, classes, count), np.float32)
    assert _kept(xp, boxes, scores, 5, 0.5).shape == (0, 3)


def test_wrong_inputs_are_refused(xp):
    boxes, scores = np.ones((1, 3, 4), np.float32), np.ones((1, 2, 3), np.float32)
    with pytest.raises(InvalidArgument, match="boxes"):
        _kept(xp, boxes, scores[..., :2], 1, 0.5)
    for share in (1.5, -0.1, np.nan):
        with pytest.raises(InvalidArgument, match="iou_threshold"):
            _kept(xp, boxes, scores, 1, share)


def test_only_the_number_of_boxes_is_read(xp, monkeypatch):
    boxes, scores = _random(1, 4, 50)
    names, sizes, download = launches_of(xp, monkeypatch), [], xp.context.download
    monkeypatch.setattr(xp.context, "download", lambda node: sizes.append(node.shape) or download(node))
    found = _operator(xp)(xp.from_host(boxes), xp.from_host(scores), np.array([5]), np.float32([0.5]))
    assert sizes == [(4,)]
    assert names[0] == "suppress"
    assert names[-1] == "kept_rows"
    np.testing.assert_array_equal(download(found.node), _expected(boxes, scores, 5, 0.5))


def test_more_boxes_than_can_be_numbered_are_left_to_the_host(xp, monkeypatch):
    monkeypatch.setattr(suppression, "MOST_BOXES", 3)
    boxes, scores = np.ones((1, 3, 4), np.float32), np.ones((1, 2, 3), np.float32)
    with pytest.raises(AssertionError, match="of the host"):
        _kept(xp, boxes, scores, 1, 0.5)


def _model(*, with_reader):
    """Boxes that are kept; with a reader, their corners, which Gather reads by the rows."""
    inputs = [
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, "n", 4]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, "classes", "n"]),
    ]
    constants = [
        helper.make_tensor("most", TensorProto.INT64, [1], [8]),
        helper.make_tensor("share", TensorProto.FLOAT, [1], [0.4]),
        helper.make_tensor("bound", TensorProto.FLOAT, [1], [0.1]),
        helper.make_tensor("two", TensorProto.INT64, [], [2]),
        helper.make_tensor("first", TensorProto.INT64, [1], [0]),
    ]
    nodes = [helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "share", "bound"], ["rows"])]
    output = helper.make_tensor_value_info("rows", TensorProto.INT64, ["kept", 3])
    if with_reader:
        nodes = [
            helper.make_node("Mul", ["boxes", "boxes"], ["own"]),
            helper.make_node("Sigmoid", ["scores"], ["shares"]),
            helper.make_node("NonMaxSuppression", ["own", "shares", "most", "share", "bound"], ["rows"]),
            helper.make_node("Gather", ["rows", "two"], ["places"], axis=1),
            helper.make_node("Squeeze", ["own", "first"], ["table"]),
            helper.make_node("Gather", ["table", "places"], ["picked"]),
            helper.make_node("Relu", ["picked"], ["y"]),
        ]
        output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["kept", 4])
    graph = helper.make_graph(nodes, "boxes", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("with_reader", [False, True])
def test_models(providers, with_reader):
    model = _model(with_reader=with_reader)
    onnx.checker.check_model(model)
    session = ort.InferenceSession(model.SerializeToString(), providers=providers)
    placed = {each.op_type: each.provider for each in session.placements()}
    assert placed["NonMaxSuppression"] == "OpenCLExecutionProvider"
    theirs = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count, seed in ((60, 1), (60, 2), (200, 3), (60, 4), (0, 5)):
        boxes, scores = _random(1, 3, count, seed)
        # equal scores, of which onnxruntime takes any, are none of its matter
        scores = scores + np.linspace(0, 0.01, scores.size, dtype=np.float32).reshape(scores.shape)
        feeds = {"boxes": boxes, "scores": scores}
        (found,), (wanted,) = session.run(None, feeds), theirs.run(None, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
