"""Gather, Scatter and NonZero on shapes that were never seen before, few and many elements, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import ort_sdk
from ort_sdk.api.errors import OrtSdkError

RANDOM = np.random.default_rng(0)
DATA = RANDOM.standard_normal((40, 7, 60)).astype(np.float32)


TUPLES = np.stack(np.divmod(RANDOM.permutation(280), 7), axis=-1)[:, None]


def model_of(op_type, arrays, **attributes):
    kind = helper.np_dtype_to_tensor_dtype
    names = [f"x{index}" for index in range(len(arrays))]
    values = [
        helper.make_tensor_value_info(name, kind(array.dtype), [None] * array.ndim)
        for name, array in zip(names, arrays, strict=True)
    ]
    result = helper.make_tensor_value_info("y", kind(np.dtype(np.int64) if op_type == "NonZero" else arrays[0].dtype), None)
    graph = helper.make_graph([helper.make_node(op_type, names, ["y"], **attributes)], "indexing", values, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8).SerializeToString()


def session_of(model):
    options = ort_sdk.SessionOptions()
    options.add_session_config_entry("session.disable_programs", "1")
    return ort_sdk.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def indices_of(limits, *shape, dtype=np.int64):
    """Index tuples, of both signs."""
    return np.stack([RANDOM.integers(-limit, limit, shape) for limit in limits], axis=-1).astype(dtype)


CASES = {
    "few tuples": ("GatherND", [DATA, indices_of((40, 7, 60), 2, 5)], {}),
    "many slices": ("GatherND", [DATA, indices_of((40, 7), 300)], {}),
    "whole numbers": ("GatherND", [np.arange(30).reshape(5, 6), indices_of((5,), 4)], {}),
    "one tuple": ("GatherND", [DATA, np.array([3, -2])], {}),
    "batches": ("GatherND", [DATA, indices_of((7,), 40, 3)], {"batch_dims": 1}),
    "along the last axis": ("GatherElements", [DATA, RANDOM.integers(-60, 60, (40, 7, 3))], {"axis": -1}),
    "more than there are": ("GatherElements", [DATA[:, 0], RANDOM.integers(-40, 40, (300, 60)).astype(np.int32)], {"axis": 0}),
    "fewer rows": ("GatherElements", [DATA[:, 0], RANDOM.integers(0, 60, (9, 5))], {"axis": 1}),
    "few updates": ("ScatterND", [DATA, np.array([[1, 2], [-3, 4]]), DATA[:2, 0]], {}),
    "many updates": (
        "ScatterND",
        [DATA, TUPLES, DATA.reshape(280, 1, 60)],
        {},
    ),
    "added": ("ScatterND", [DATA, np.array([[1], [1]]), DATA[:2]], {"reduction": "add"}),
    "found": ("NonZero", [DATA > 1], {}),
    "found numbers": ("NonZero", [RANDOM.integers(-1, 2, (3, 4, 5))], {}),
    "nothing found": ("NonZero", [np.zeros((3, 4), np.float32)], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_as_onnxruntime(name):
    op_type, arrays, attributes = CASES[name]
    model = model_of(op_type, arrays, **attributes)
    feeds = {f"x{index}": array for index, array in enumerate(arrays)}
    (expected,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = session_of(model)
    for _ in range(2):
        (found,) = session.run(None, feeds)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", [3, 9000])
@pytest.mark.parametrize(
    ("op_type", "make_arrays"),
    [
        ("GatherND", lambda count: [DATA[:, 0], np.full((count, 2), 40)]),
        ("GatherND", lambda count: [DATA[:, 0], np.zeros((count, 3), np.int64)]),
        ("GatherElements", lambda count: [DATA[:, 0], np.full((count, 2), 40)]),
        ("GatherElements", lambda count: [DATA[:, 0], np.zeros((2, 61), np.int64)]),
        ("ScatterND", lambda count: [DATA[:, 0], np.full((count, 2), 40), np.zeros(count, np.float32)]),
        ("ScatterND", lambda count: [DATA[:, 0], np.zeros((count, 2), np.int64), np.zeros(count - 1, np.float32)]),
        ("ScatterND", lambda count: [DATA[:, 0], np.zeros((count, 2), np.int64), np.zeros(1, np.float32)]),
    ],
)
def test_what_does_not_fit_is_refused(op_type, make_arrays, count):
    arrays = make_arrays(count)
    session = session_of(model_of(op_type, arrays))
    with pytest.raises(OrtSdkError):
        session.run(None, {f"x{index}": array for index, array in enumerate(arrays)})
