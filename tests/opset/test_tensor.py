"""The tensor family against onnxruntime at every version it runs, and over array_api_strict."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, TensorElementType
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_sdk
from tests.opset.tensor_cases import CASES, IMAGE, TEXT, X, inputs_for, ints


def _versions():
    return [
        pytest.param(op_type, version, inputs_for(version, inputs), attributes, outputs, id=f"{index}-{op_type}-{version}")
        for index, (op_type, versions, inputs, attributes, outputs) in enumerate(CASES)
        for version in versions
    ]


@pytest.mark.parametrize(("op_type", "version", "inputs", "attributes", "outputs"), _versions())
def test_as_onnxruntime(op_type, version, inputs, attributes, outputs):
    compare(op_type, inputs, outputs, opset=version, attributes=attributes, rtol=1e-4, atol=1e-4)


def _strict_cases():
    return [
        pytest.param(op_type, versions[-1], inputs_for(versions[-1], inputs), attributes, outputs, id=f"{index}-{op_type}")
        for index, (op_type, versions, inputs, attributes, outputs) in enumerate(CASES)
    ]


@pytest.mark.parametrize(("op_type", "version", "inputs", "attributes", "outputs"), _strict_cases())
def test_strict_library_gives_the_same(op_type, version, inputs, attributes, outputs):
    model, feeds = make_model(op_type, inputs, outputs, opset=version, attributes=attributes)
    expected = run_sdk(model, feeds)
    types = [TensorElementType.from_numpy_dtype(value.dtype) for value in expected]
    actual = run_kernel(op_type, inputs, types, opset=version, attributes=attributes, library=array_api_strict)
    for got, want in zip(actual, expected, strict=True):
        assert_same(got, want, 1e-5, 1e-5)


TEXT_CASES = [
    ("Reshape", 13, [TEXT, ints(3, 2)], {}, 1),
    ("Transpose", 13, [TEXT], {}, 1),
    ("Concat", 13, [TEXT, TEXT], {"axis": 1}, 1),
    ("Slice", 13, [TEXT, ints(2), ints(-9), ints(1), ints(-1)], {}, 1),
    ("Split", 13, [TEXT, ints(1, 1)], {}, 2),
    ("Gather", 13, [TEXT, ints(1, 0)], {"axis": 1}, 1),
    ("Gather", 13, [TEXT[0], np.array(1)], {}, 1),
    ("GatherElements", 13, [TEXT, np.array([[0, 1, 1]])], {}, 1),
    ("GatherND", 13, [TEXT, np.array([[0, 1], [1, 1]])], {}, 1),
    ("ScatterElements", 13, [TEXT, np.array([[1, 0, 1]]), TEXT[:1]], {}, 1),
    ("ScatterND", 13, [TEXT, np.array([[1]]), TEXT[:1]], {}, 1),
    ("Where", 9, [np.array([True, False, True]), TEXT, TEXT[::-1].copy()], {}, 1),
    ("Expand", 13, [TEXT[:, :1], ints(2, 3)], {}, 1),
    ("Unsqueeze", 13, [TEXT, ints(0)], {}, 1),
    ("Compress", 11, [TEXT, np.array([True, False, True])], {"axis": 1}, 1),
    ("Unique", 11, [TEXT], {}, 4),
    ("OneHot", 11, [ints(0, 2), ints(3), TEXT[0, :2]], {}, 1),
    ("ReverseSequence", 10, [TEXT, ints(1, 2, 2)], {}, 1),
    ("Identity", 13, [TEXT], {}, 1),
    ("Shape", 13, [TEXT], {}, 1),
]


@pytest.mark.parametrize(("op_type", "version", "inputs", "attributes", "outputs"), TEXT_CASES)
def test_strings_as_onnxruntime(op_type, version, inputs, attributes, outputs):
    compare(op_type, inputs, outputs, opset=version, attributes=attributes)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "expected"),
    [
        ("Pad", [TEXT, ints(0, 1, 0, 0)], {}, [["", "a", "b", "c"], ["", "", "éé", "a"]]),
        ("Trilu", [TEXT], {}, [["a", "b", "c"], ["", "éé", "a"]]),
        ("Tile", [TEXT[:, :1], ints(1, 2)], {}, [["a", "a"], ["", ""]]),
    ],
)
def test_strings_that_onnxruntime_lacks(op_type, inputs, attributes, expected):
    model, feeds = make_model(op_type, inputs, opset=18, attributes=attributes, output_types=[int(TensorElementType.STRING)])
    assert run_sdk(model, feeds)[0].tolist() == expected


NARROW = [
    TensorElementType.BFLOAT16,
    TensorElementType.FLOAT8E5M2,
    TensorElementType.INT4,
    TensorElementType.UINT2,
    TensorElementType.FLOAT4E2M1,
    TensorElementType.FLOAT8E8M0,
]
MOVES = [
    ("Reshape", [ints(3, 2)], {}, lambda x: x.reshape(3, 2)),
    ("Transpose", [], {}, lambda x: x.T),
    ("Unsqueeze", [ints(1)], {}, lambda x: x[:, None]),
    ("Flatten", [], {"axis": 0}, lambda x: x.reshape(1, 6)),
    ("Identity", [], {}, lambda x: x),
    ("Pad", [ints(0, 1, 0, 2)], {"mode": "edge"}, lambda x: x[:, [0, 0, 1, 2, 2, 2]]),
]


@pytest.mark.parametrize("element_type", NARROW)
@pytest.mark.parametrize(("op_type", "rest", "attributes", "formula"), MOVES)
def test_moves_of_narrow_types(element_type, op_type, rest, attributes, formula):
    x = np.array([[1, 2, 1], [2, 1, 1]], np.float32).astype(element_type.numpy_dtype)
    (actual,) = run_kernel(op_type, [x, *rest], [element_type], opset=25, attributes=attributes, library=np)
    assert actual.dtype == x.dtype
    assert np.array_equal(np.ascontiguousarray(actual).view(np.uint8), np.ascontiguousarray(formula(x)).view(np.uint8))


FIRST_VERSIONS = [
    ("Reshape", 1, [X], {"shape": [0, -1, 2]}, lambda: X.reshape(4, 15, 2)),
    ("Concat", 1, [X, X], {}, lambda: np.concatenate([X, X], 1)),
    ("Tile", 1, [X, np.array([3], np.float32), np.array([1], np.float32)], {}, lambda: np.tile(X, (1, 3, 1))),
    (
        "Pad",
        1,
        [X],
        {"paddings": [0, 1, 0, 0, 0, 2], "value": 2.0},
        lambda: np.pad(X, ((0, 0), (1, 0), (0, 2)), constant_values=2),
    ),
    ("Upsample", 1, [IMAGE], {"height_scale": 2.0, "width_scale": 3.0}, lambda: IMAGE.repeat(2, 2).repeat(3, 3)),
    ("Cast", 1, [X], {"to": "INT32"}, lambda: X.astype(np.int32)),
    ("Cast", 6, [X], {"to": 7}, lambda: X.astype(np.int64)),
]


@pytest.mark.parametrize(("op_type", "version", "inputs", "attributes", "expected"), FIRST_VERSIONS)
def test_first_versions(op_type, version, inputs, attributes, expected):
    element_type = TensorElementType.from_numpy_dtype(expected().dtype)
    (actual,) = run_kernel(op_type, inputs, [element_type], opset=version, attributes=attributes, library=np)
    assert_same(actual, expected(), 0, 0)


def test_split_1_reads_lengths_from_its_input_or_attribute():
    types = [TensorElementType.FLOAT] * 2
    for inputs, attributes in (([X, np.array([1, 3], np.float32)], {}), ([X], {"split": [1, 3]})):
        first, second = run_kernel("Split", inputs, types, opset=1, attributes=attributes, library=np)
        assert_same(first, X[:1], 0, 0)
        assert_same(second, X[1:], 0, 0)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
@pytest.mark.parametrize("attributes", [{"mode": "nearest"}, {"mode": "linear"}, {"mode": "linear", "antialias": 1}])
def test_resize_of_other_types(dtype, attributes):
    image = (np.abs(IMAGE) * 60).astype(dtype)
    compare("Resize", [image, None, None, ints(2, 8, 3, 9)], opset=18, attributes=attributes, off_by=1)


def test_split_into_more_parts_than_it_may_alias():
    parts = run_kernel(
        "Split", [X.reshape(-1)], [TensorElementType.FLOAT] * 120, opset=18, attributes={"num_outputs": 120}, library=np
    )
    assert_same(np.concatenate(parts), X.reshape(-1), 0, 0)
    assert not any(np.shares_memory(part, X) for part in parts)


def test_outputs_of_a_session_are_not_its_inputs():
    for op_type, inputs in (("Identity", [X]), ("Reshape", [X, ints(-1)]), ("Transpose", [X]), ("Slice", [X, ints(1), ints(2)])):
        model, feeds = make_model(op_type, inputs, opset=13, output_types=[1])
        assert not np.shares_memory(run_sdk(model, feeds)[0], X)


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("shape", [(5, 3), (5, 2, 200), (1, 1), (4, 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.float16])
def test_rows_are_combined_in_order(reduction, shape, dtype):
    generator = np.random.default_rng(4)
    data = (generator.standard_normal(shape) * 4).astype(dtype)
    indices = generator.integers(-shape[0], shape[0], (7, 1))
    updates = (generator.standard_normal((7, *shape[1:])) * 4).astype(dtype)
    (found,) = run_sdk(*make_model("ScatterND", [data, indices, updates], opset=18, attributes={"reduction": reduction}))
    combine = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    wide = np.float32 if dtype == np.float16 else dtype
    expected = data.astype(wide)
    for (index,), update in zip(indices.tolist(), updates.astype(wide), strict=True):
        expected[index] = combine(expected[index], update)
    np.testing.assert_array_equal(found, expected.astype(dtype))


def test_scatter_with_add_and_duplicates_keeps_every_update():
    (actual,) = run_kernel(
        "ScatterElements",
        [np.zeros(3, np.float16), ints(1, 1, 1), np.ones(3, np.float16)],
        [TensorElementType.FLOAT16],
        opset=18,
        attributes={"reduction": "add"},
        library=np,
    )
    assert actual.tolist() == [0, 3, 0]


@pytest.mark.parametrize("library", [np, array_api_strict])
@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("shape", [(2, 4, 3), (2, 3, 4, 5)])
def test_tensor_scatter_as_its_definition(library, mode, shape):
    cache, length = np.arange(np.prod(shape), dtype=np.float32).reshape(shape), 2
    starts = ints(1, 2) if mode == "linear" else ints(3, 9)
    axis = len(shape) - 2
    update = -np.ones((*shape[:axis], length, *shape[axis + 1 :]), np.float32)
    expected = cache.copy()
    for batch, start in enumerate(starts):
        for step in range(length):
            expected[batch, ..., (start + step) % shape[axis], :] = -1
    (actual,) = run_kernel(
        "TensorScatter", [cache, update, starts], [TensorElementType.FLOAT], opset=24, attributes={"mode": mode}, library=library
    )
    assert_same(actual, expected, 0, 0)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes", "text"),
    [
        ("Reshape", [X, ints(7, -1)], {}, "cannot reshape"),
        ("Reshape", [X, ints(-1, -1)], {}, "at most one dimension"),
        ("Flatten", [X], {"axis": 4}, "axis 4 is outside"),
        ("Squeeze", [X, ints(0)], {}, "not all of size 1"),
        ("Unsqueeze", [X, ints(1, 1)], {}, "twice"),
        ("Transpose", [X], {"perm": [0, 1]}, "perm"),
        ("Expand", [X, ints(7, 6)], {}, "cannot broadcast"),
        ("Tile", [X, ints(2)], {}, "repeats"),
        ("Split", [X, ints(1, 1)], {}, "cannot split"),
        ("Slice", [X, ints(0), ints(2), ints(0), ints(0)], {}, "must not be 0"),
        ("Gather", [X, ints(9)], {}, "outside axis 0"),
        ("GatherElements", [X, np.full((1, 1, 1), 9)], {}, "do not fit"),
        ("GatherND", [X, np.array([[9]])], {}, "do not fit"),
        ("GatherND", [X, np.array(1)], {}, "no axis of index tuples"),
        ("GatherND", [X[:2], ints(1, 0)], {"batch_dims": 1}, "no axis of index tuples"),
        ("ScatterND", [X, np.array([[9]]), X[:1]], {}, "do not fit"),
        ("ScatterElements", [X, np.full((1, 1, 1), 9), X[:1, :1, :1]], {}, "do not fit"),
        ("OneHot", [ints(1), ints(-1), X[0, 0, :2]], {}, "depth"),
        ("ReverseSequence", [X, ints(1)], {}, "sequence_lens"),
        ("DepthToSpace", [IMAGE], {"blocksize": 3}, "no multiple"),
        ("SpaceToDepth", [IMAGE], {"blocksize": 5}, "not divisible"),
        ("Pad", [X, ints(1)], {}, "two numbers for each"),
        ("Pad", [X, ints(-5, 0, 0, 0, 0, 0)], {}, "cut more"),
        ("Pad", [X, ints(0, 0, 0, 0, 0, 0)], {"mode": "mirror"}, "must be constant"),
        ("CenterCropPad", [X, ints(1)], {}, "one size for each"),
        ("Resize", [IMAGE, None, np.array([1, 1, 0, 1], np.float32)], {}, "greater than 0"),
        ("Resize", [IMAGE, None, np.array([1, 1], np.float32)], {}, "must hold 4"),
        ("Resize", [IMAGE, None, np.ones(4, np.float32)], {"mode": "quintic"}, "must be one of"),
        ("GridSample", [IMAGE, np.zeros((1, 1, 1, 2), np.float32)], {}, "does not fit"),
        ("AffineGrid", [np.zeros((1, 2, 3), np.float32), ints(2, 1, 3, 3)], {}, "does not fit"),
        ("Col2Im", [X, ints(5, 5), ints(2, 2)], {}, "do not fit"),
        ("RoiAlign", [IMAGE, np.zeros((1, 4), np.float32), ints(7)], {}, "batch indices"),
        ("NonMaxSuppression", [X, X], {}, "must be"),
    ],
)
def test_bad_input_is_refused(op_type, inputs, attributes, text):
    types = [TensorElementType.FLOAT] * 2
    with pytest.raises(InvalidArgument, match=text):
        run_kernel(op_type, inputs, types, opset=20, attributes=attributes, library=np)


def test_tensor_scatter_refuses_to_leave_the_cache():
    with pytest.raises(InvalidArgument, match="leaves the cache"):
        run_kernel("TensorScatter", [X, X[:, :2], ints(4, 0, 0, 0)], [TensorElementType.FLOAT], opset=24, library=np)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_of_doubles_is_that_of_floats(mode):
    arguments = {"opset": 18, "attributes": {"mode": mode}, "library": np}
    inputs = [None, None, ints(2, 8, 3, 9)]
    (floats,) = run_kernel("Resize", [IMAGE, *inputs], [TensorElementType.FLOAT], **arguments)
    (doubles,) = run_kernel("Resize", [IMAGE.astype(np.float64), *inputs], [TensorElementType.DOUBLE], **arguments)
    assert_same(doubles, floats.astype(np.float64), 1e-5, 1e-5)
