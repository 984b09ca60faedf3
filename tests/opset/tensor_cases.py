"""Nodes of the tensor family: (op_type, versions, inputs, attributes, outputs)."""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(11)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values):
    return np.array(values, dtype=np.int64)


X = floats(4, 5, 6)
IMAGE = floats(2, 8, 6, 4)
TEXT = np.array([["a", "b", "c"], ["", "éé", "a"]], dtype=object)
ROIS = np.array([[0.3, 0.4, 3.2, 2.9], [-1, -1, 8, 9], [2, 2, 2.1, 2.1], [4, 3, 1, 1]], np.float32)
BOXES = RNG.random((2, 20, 4)).astype(np.float32)
SCORES = RNG.random((2, 3, 20)).astype(np.float32).round(1)
GRID = floats(2, 3, 5, 2) * np.float32(1.3)
GRID_3D = floats(2, 3, 5, 2, 3) * np.float32(1.3)
UNIQUE_INDICES = RNG.permuted(np.arange(5)[None, :, None].repeat(4, 0).repeat(6, 2), axis=1)[:2, :3, :4]

SHAPES = [
    ("Identity", (1, 13, 14, 16, 19), [X], {}, 1),
    ("Reshape", (5, 13, 14, 19, 21), [X, ints(0, -1, 3, 2)], {}, 1),
    ("Reshape", (14, 23), [X[:0], ints(3, 0, 7)], {"allowzero": 1}, 1),
    ("Flatten", (1, 9, 11, 13), [X], {"axis": 2}, 1),
    ("Flatten", (9, 11), [X], {"axis": 0}, 1),
    ("Flatten", (11, 13), [X], {"axis": -1}, 1),
    ("Flatten", (13,), [X], {"axis": 3}, 1),
    ("Squeeze", (1, 11), [X[:1, :, :1]], {}, 1),
    ("Squeeze", (1, 11), [X[:1, :, :1]], {"axes": [2]}, 1),
    ("Squeeze", (13, 21), [X[:1, :, :1], ints(-1)], {}, 1),
    ("Squeeze", (13,), [X[:1, :, :1]], {}, 1),
    ("Squeeze", (13,), [X[:1, :, :1], ints()], {}, 1),
    ("Unsqueeze", (1, 11), [X], {"axes": [0, 4]}, 1),
    ("Unsqueeze", (13, 21), [X, ints(-1, 0)], {}, 1),
    ("Shape", (1, 13), [X], {}, 1),
    ("Shape", (15, 19), [X], {"start": -2, "end": 9}, 1),
    ("Size", (1, 13), [X], {}, 1),
    ("Transpose", (1, 13, 21), [X], {}, 1),
    ("Transpose", (1, 13), [X], {"perm": [1, 2, 0]}, 1),
    ("DepthToSpace", (1,), [IMAGE], {"blocksize": 2}, 1),
    ("DepthToSpace", (11, 13), [IMAGE], {"blocksize": 2, "mode": "CRD"}, 1),
    ("SpaceToDepth", (1, 13), [IMAGE], {"blocksize": 2}, 1),
    ("Expand", (8, 13), [X[:, :1], ints(2, 4, 3, 1)], {}, 1),
    ("Tile", (6, 13), [X, ints(2, 1, 3)], {}, 1),
    ("Concat", (4,), [X, X[:2]], {"axis": 0}, 1),
    ("Concat", (11, 13), [X, X[..., :2]], {"axis": -1}, 1),
    ("Split", (2, 11), [X], {"axis": 2}, 3),
    ("Split", (2, 11), [X], {"axis": 1, "split": [1, 4, 0]}, 3),
    ("Split", (13, 18), [X, ints(1, 4, 0)], {"axis": -2}, 3),
    ("Split", (18,), [X], {"axis": 1, "num_outputs": 2}, 2),
    ("Slice", (1,), [X], {"starts": [1, -3], "ends": [9, -1], "axes": [0, 2]}, 1),
    ("Slice", (1,), [X], {"starts": [1, -3], "ends": [9, -1]}, 1),
    ("Slice", (10, 11, 13), [X, ints(1, 4), ints(99, -99), ints(0, 1), ints(2, -1)], {}, 1),
    ("Slice", (10, 13), [X, ints(-7, 9), ints(-9, -9), ints(1, 2), ints(-2, -3)], {}, 1),
    ("Slice", (11,), [X, ints(3), ints(1), ints(-1)], {}, 1),
]

PICKS = [
    ("Gather", (1, 11, 13), [X, np.array([[1, 0], [3, 2]], np.int32)], {}, 1),
    ("Gather", (11, 13), [X, ints(-1, 0, -5)], {"axis": -2}, 1),
    ("Gather", (13,), [X, np.array(2)], {"axis": 1}, 1),
    ("GatherElements", (11, 13), [X, RNG.integers(-5, 5, (3, 7, 6))], {"axis": 1}, 1),
    ("GatherND", (11, 12, 13), [X, RNG.integers(-4, 4, (3, 2, 2))], {}, 1),
    ("GatherND", (12, 13), [X, RNG.integers(-5, 5, (4, 3, 1))], {"batch_dims": 1}, 1),
    ("Scatter", (9,), [X, UNIQUE_INDICES, floats(2, 3, 4)], {"axis": 1}, 1),
    ("ScatterElements", (11, 13, 16, 18), [X, UNIQUE_INDICES - 5, floats(2, 3, 4)], {"axis": 1}, 1),
    ("ScatterND", (11, 13, 16, 18), [X, np.array([[2], [-4]]), floats(2, 5, 6)], {}, 1),
    *(
        (op_type, (16, 18) if reduction in {"add", "mul"} else (18,), inputs, {"reduction": reduction}, 1)
        for reduction in ("add", "mul", "max", "min")
        for op_type, inputs in (
            ("ScatterElements", [X, RNG.integers(-4, 4, (4, 3, 4)), floats(4, 3, 4)]),
            ("ScatterND", [X, RNG.integers(-4, 4, (6, 2)), floats(6, 6)]),
        )
    ),
    ("Where", (9, 16), [X > 0, X, floats(6)], {}, 1),
    ("NonZero", (9, 13), [X.round()], {}, 1),
    ("NonZero", (13,), [np.array(3.0, np.float32)], {}, 1),
    ("Compress", (9, 11), [X, np.array([True, False, True])], {"axis": 1}, 1),
    ("Compress", (9, 11), [X, np.array([False, True, True])], {}, 1),
    ("OneHot", (9, 11), [RNG.integers(-7, 7, (2, 3)), ints(4), floats(2)], {"axis": 1}, 1),
    ("Unique", (11,), [X.round()], {}, 4),
    ("Unique", (11,), [X.round()], {"sorted": 0}, 4),
    ("Unique", (11,), [X.round()[:, :1, :2]], {"axis": 0, "sorted": 0}, 4),
    ("Unique", (11,), [np.concatenate([IMAGE, IMAGE]).round()], {"axis": 0}, 4),
    ("ReverseSequence", (10,), [X, ints(1, 4, 2, 3, 1)], {}, 1),
    ("ReverseSequence", (10,), [X, ints(1, 5, 0, 3)], {"time_axis": 1, "batch_axis": 0}, 1),
    ("Trilu", (14,), [X, np.array(-1)], {}, 1),
    ("Trilu", (14,), [X, np.array(2)], {"upper": 0}, 1),
    ("Pad", (2,), [X], {"pads": [0, 1, -1, 2, 0, 3], "value": 1.5}, 1),
    *(("Pad", (11, 13, 18, 19, 21), [X, ints(0, 1, -1, 2, 0, 3)], {"mode": mode}, 1) for mode in ("constant", "reflect", "edge")),
    ("Pad", (19, 21), [X, ints(0, 1, -1, 2, 0, 3)], {"mode": "wrap"}, 1),
    ("Pad", (18, 19), [X, ints(1, 0, 0, 2), np.array(7, np.float32), ints(-1, 0)], {}, 1),
    ("CenterCropPad", (18,), [X, ints(7, 3)], {"axes": [0, -1]}, 1),
    ("CenterCropPad", (18,), [X, ints(1, 8, 6)], {}, 1),
]

SAMPLING = [
    *(
        ("GridSample", (version,), [IMAGE, GRID], {"mode": mode, "padding_mode": padding, "align_corners": corners}, 1)
        for version, modes in ((16, ("nearest", "bilinear", "bicubic")), (20, ("nearest", "linear", "cubic")))
        for mode in modes
        for padding in ("zeros", "border", "reflection")
        for corners in (0, 1)
    ),
    *(
        ("GridSample", (20,), [IMAGE.reshape(2, 4, 2, 6, 4), GRID_3D], {"mode": mode, "padding_mode": padding}, 1)
        for mode in ("nearest", "linear")
        for padding in ("zeros", "border", "reflection")
    ),
    ("AffineGrid", (20,), [floats(2, 2, 3), ints(2, 1, 3, 4)], {"align_corners": 1}, 1),
    ("AffineGrid", (20,), [floats(2, 3, 4), ints(2, 1, 3, 4, 2)], {}, 1),
    (
        "Col2Im",
        (18,),
        [floats(2, 12, 12), ints(5, 6), ints(2, 2)],
        {"strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 0, 0]},
        1,
    ),
    *(
        (
            "RoiAlign",
            (10, 16),
            [IMAGE, ROIS, ints(0, 1, 1, 0)],
            {"mode": mode, "output_height": 2, "output_width": 3, "sampling_ratio": ratio},
            1,
        )
        for mode in ("avg", "max")
        for ratio in (0, 2)
    ),
    (
        "RoiAlign",
        (16,),
        [IMAGE, ROIS, ints(0, 1, 1, 0)],
        {"coordinate_transformation_mode": "output_half_pixel", "spatial_scale": 0.5},
        1,
    ),
    ("MaxRoiPool", (1,), [IMAGE, np.insert(ROIS[:3], 0, [0, 1, 0], axis=1)], {"pooled_shape": [2, 3], "spatial_scale": 0.75}, 1),
    ("NonMaxSuppression", (10, 11), [BOXES, SCORES, ints(6), np.array([0.3], np.float32), np.array([0.2], np.float32)], {}, 1),
    ("NonMaxSuppression", (11,), [BOXES, SCORES, ints(20), np.array([0.5], np.float32)], {"center_point_box": 1}, 1),
    ("NonMaxSuppression", (11,), [BOXES, SCORES], {}, 1),
    ("Upsample", (7,), [IMAGE], {"scales": [1.0, 1.0, 1.5, 2.6]}, 1),
    ("Upsample", (7,), [IMAGE], {"scales": [1.0, 1.0, 1.5, 2.6], "mode": "linear"}, 1),
    ("Upsample", (9,), [IMAGE, np.array([1, 1, 2, 3], np.float32)], {"mode": "linear"}, 1),
    ("Upsample", (9,), [IMAGE, np.array([1, 1, 2, 1.3], np.float32)], {}, 1),
    ("Resize", (10,), [IMAGE, np.array([1, 1, 0.6, 1.5], np.float32)], {}, 1),
    ("Resize", (10,), [IMAGE, np.array([1, 1, 0.6, 1.5], np.float32)], {"mode": "linear"}, 1),
]

NO_ROI = np.zeros(0, np.float32)


def inputs_for(version, inputs):
    """The inputs with absent ones as a version wants them: Resize-11 takes empty tensors, later ones want none."""
    return inputs if version < 13 else [None if value is NO_ROI else value for value in inputs]


def resize_cases():
    for mode in ("nearest", "linear", "cubic"):
        for coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
            attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
            sizes = [IMAGE, NO_ROI, NO_ROI, ints(2, 8, 3, 9)]
            yield ("Resize", (11, 13, 18, 19), sizes, attributes, 1)
            if coordinates != "align_corners":
                yield ("Resize", (11, 13, 18, 19), [IMAGE, NO_ROI, np.array([1, 1, 0.6, 2.7], np.float32)], attributes, 1)
    for rounding in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        attributes = {"nearest_mode": rounding, "coordinate_transformation_mode": "half_pixel"}
        yield ("Resize", (11, 19), [IMAGE, NO_ROI, np.array([1, 1, 0.5, 2], np.float32)], attributes, 1)
    for mode in ("linear", "cubic"):
        yield ("Resize", (18, 19), [IMAGE, None, None, ints(2, 8, 3, 9)], {"mode": mode, "antialias": 1}, 1)
    exclude = {"mode": "cubic", "exclude_outside": 1, "cubic_coeff_a": -0.5}
    yield ("Resize", (11, 19), [IMAGE, NO_ROI, NO_ROI, ints(2, 8, 3, 9)], exclude, 1)
    yield ("Resize", (18, 19), [IMAGE, None, None, ints(2, 8, 3, 9)], {**exclude, "antialias": 1}, 1)
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
    roi = np.array([0, 0, -0.2, 0.3, 1, 1, 0.8, 1.2], np.float32)
    for mode in ("nearest", "linear", "cubic"):
        yield ("Resize", (11, 13, 19), [IMAGE, roi, NO_ROI, ints(2, 8, 3, 9)], {**crop, "mode": mode}, 1)
    for policy in ("stretch", "not_larger", "not_smaller"):
        attributes = {"keep_aspect_ratio_policy": policy, "axes": [3, 2], "mode": "linear"}
        yield ("Resize", (18, 19), [IMAGE, None, None, ints(7, 8)], attributes, 1)
    symmetric = {"coordinate_transformation_mode": "half_pixel_symmetric", "mode": "linear"}
    yield ("Resize", (19,), [IMAGE, None, np.array([0.6, 2.7], np.float32)], {**symmetric, "axes": [2, 3]}, 1)
    yield (
        "Resize",
        (11,),
        [IMAGE, NO_ROI, NO_ROI, ints(2, 8, 3, 9)],
        {"coordinate_transformation_mode": "tf_half_pixel_for_nn"},
        1,
    )
    yield ("Resize", (13,), [IMAGE[0, 0], None, None, ints(300, 2)], {"mode": "linear"}, 1)
    yield ("Resize", (13,), [floats(1, 1, 200, 3), None, None, ints(1, 1, 333, 3)], {"mode": "cubic"}, 1)


CASES = [*SHAPES, *PICKS, *SAMPLING, *resize_cases()]
