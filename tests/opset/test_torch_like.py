"""The shared set over a library that has no more than the standard says, and not all of NumPy's habits besides."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest

import ort_sdk.opset.tensor.slice as slices
from ort_sdk.api import KernelInfo, TensorElementType
from ort_sdk.opset import as_namespace
from ort_sdk.opset.controlflow.expanding import concatenated
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import make_model, run_reference

FLOAT, UINT8, INT32, INT64 = (getattr(TensorElementType, name) for name in ("FLOAT", "UINT8", "INT32", "INT64"))
RNG = np.random.default_rng(11)


@pytest.fixture
def no_size(monkeypatch):
    """Arrays whose ``size`` is a method, as torch's is."""
    monkeypatch.setattr(type(array_api_strict.zeros(1)), "size", lambda self: self.shape)


def u8(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def scalar(value, dtype=np.float32):
    return np.array(value, dtype)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


IMAGE, WEIGHT = u8(1, 2, 5, 5), u8(3, 2, 3, 3)
PACKED = u8(8, 2, 16)
CASES = [
    ("ConvInteger", "", [IMAGE, WEIGHT, scalar(3, np.uint8), scalar(5, np.uint8)], [INT32], {}),
    ("ConvInteger", "", [IMAGE, u8(3, 2, 1, 1), scalar(3, np.uint8), scalar(5, np.uint8)], [INT32], {}),
    (
        "QLinearConv",
        "",
        [
            *(IMAGE, scalar(0.1), scalar(3, np.uint8), WEIGHT, scalar(0.02), scalar(5, np.uint8)),
            *(scalar(2), scalar(7, np.uint8), np.arange(3, dtype=np.int32)),
        ],
        [UINT8],
        {},
    ),
    ("Conv", "", [floats(1, 2, 5, 5), floats(4, 2, 1, 1)], [FLOAT], {}),
    (
        "MatMulNBits",
        "com.microsoft",
        [floats(2, 64), PACKED, floats(8, 2)],
        [FLOAT],
        {"K": 64, "N": 8, "bits": 4, "block_size": 32},
    ),
    (
        "RotaryEmbedding",
        "com.microsoft",
        [floats(1, 2, 3, 8), np.arange(3, dtype=np.int64).reshape(1, 3), floats(8, 4), floats(8, 4)],
        [FLOAT],
        {},
    ),
    ("Tile", "", [floats(2, 3), np.array([2, 3])], [FLOAT], {}),
    ("MaxPool", "", [floats(1, 2, 5, 5)], [FLOAT], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("Clip", "", [floats(2, 3), scalar(-0.5), scalar(0.5)], [FLOAT], {}),
]


@pytest.mark.usefixtures("no_size")
@pytest.mark.parametrize(("op_type", "domain", "inputs", "types", "attributes"), CASES)
def test_kernels_ask_for_no_size(op_type, domain, inputs, types, attributes):
    model, feeds = make_model(
        op_type, inputs, domain=domain, opset=None if domain else 17, attributes=attributes, output_types=[int(types[0])]
    )
    (expected,) = run_reference(model, feeds)
    (found,) = run_kernel(op_type, inputs, types, opset=1 if domain else 17, domain=domain, attributes=attributes)
    assert found.dtype == expected.dtype
    if expected.dtype == np.float32:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(found, expected)


class Forward:
    """An array that takes no negative steps, as torch's."""

    def __init__(self, array):
        self.array, self.shape = array, array.shape

    def __getitem__(self, index):
        assert all(part.step is None or part.step > 0 for part in index)
        return self.array[index]


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ([-1], [-100], [0], [-1]),
        ([4, 0], [0, 5], [1, 0], [-2, 2]),
        ([100, 3], [-100, -100], [0, 1], [-3, -1]),
        ([0], [3], [1], [-1]),
        ([2], [2], [0], [-1]),
        ([1], [4], [1], [1]),
    ],
)
def test_slices_backwards_take_no_negative_step(starts, ends, axes, steps):
    x = np.arange(30, dtype=np.float32).reshape(5, 6)
    info, xp = KernelInfo("Slice", 13), as_namespace(array_api_strict)
    found = slices._sliced(info, xp, Forward(array_api_strict.asarray(x)), starts, ends, axes, steps)
    model, feeds = make_model("Slice", [x, *(np.array(part) for part in (starts, ends, axes, steps))], opset=17)
    np.testing.assert_array_equal(np.asarray(found), run_reference(model, feeds)[0])


def test_a_programs_step_over_another_library_has_its_types():
    xp = as_namespace(array_api_strict)
    arrays = [array_api_strict.ones((2, 3), dtype=array_api_strict.float32)] * 2
    asked = []

    class Provider:
        def step_kernel(self, op_type, types, attributes):
            asked.append((op_type, list(types), attributes))

    class Program:
        def value(self, index):
            return arrays[index]

        def launch(self, op_type, kernel, inputs, attributes):
            return np.asarray(kernel.compute(*(arrays[index] for index in inputs)))

    info = KernelInfo("ConcatFromSequence", 11, execution_provider=Provider())
    assert concatenated(Program(), info, xp, [0, 1], 0).shape == (4, 3)
    assert asked == [("Concat", ["tensor(float)"] * 2, {"axis": 0})]
