"""Bound kernels that compute or move single elements, or reduce: any strides, broadcasting, no elements, infinities and NaNs."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu import operator_modules
from ort_sdk_cpu.elementwise.erf import erf_float32, gelu_float32
from ort_sdk_cpu.kernel.bindable import BINDERS
from ort_sdk_cpu.kernel.eager import DIRECT_CALLS
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.registry import kernel_registry

from ort_sdk.api import NodeArg

MICROSOFT = "com.microsoft"


SHAPES = [(), (0,), (3, 0, 2), (7,), (4, 5), (2, 3, 17), (3, 70, 101)]


UNARY = [
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu"),
    *("HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu"),
]


@pytest.mark.parametrize("op_type", UNARY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_of_one_input(check, layouts, op_type, dtype):
    for shape in SHAPES:
        for x in layouts(shape, dtype):
            check(op_type, x, tolerance=2e-6)


def test_truth_values_and_bits(check, layouts):
    for x in layouts((3, 7), np.bool_):
        check("Not", x)
    for x in layouts((3, 7), np.int16):
        check("BitwiseNot", x)
        check("Neg", x)
    for x in layouts((3, 7)):
        check("IsNaN", x)


BROADCAST = [((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((3, 1), (1, 5)), ((), (3,)), ((0, 2), (1, 2)), ((), ())]


@pytest.mark.parametrize("shapes", BROADCAST, ids=str)
def test_functions_of_two_inputs_broadcast(check, layouts, shapes):
    for op_type in ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Equal", "Less", "GreaterOrEqual"):
        for a, b in zip(layouts(shapes[0]), layouts(shapes[1], seed=1), strict=True):
            check(op_type, a, b)
    for op_type in ("And", "Or", "Xor"):
        for a, b in zip(layouts(shapes[0], np.bool_), layouts(shapes[1], np.bool_, seed=1), strict=True):
            check(op_type, a, b)
    for op_type in ("Add", "Mul", "BitwiseXor", "Max"):
        for a, b in zip(layouts(shapes[0], np.int32), layouts(shapes[1], np.int32, seed=1), strict=True):
            check(op_type, a, b)


def test_any_number_of_inputs(check, layouts):
    arrays = [*layouts((2, 3)), *layouts((3,), seed=2)]
    for op_type in ("Max", "Min", "Sum"):
        check(op_type, *arrays)
        check(op_type, arrays[0])


def test_constant_exponents(check):
    x = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    for exponent in (2.0, 3.0, 0.5):
        check("Pow", x, np.array(exponent, np.float32), constants=(1,))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_signed_quotients(run_both, dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a, b = np.array([7, -7, 7, -7, 6, -6, 0, low, low, high], dtype), np.array([2, 2, -2, -2, 3, 3, -5, 3, 1, -2], dtype)
    _, bound = run_both("Div", a, b)
    expected = [abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b, strict=True)]
    assert bound[0].tolist() == expected
    _, bound = run_both("Div", a.reshape(2, 5), np.array(4, dtype))
    assert bound[0].dtype == dtype
    assert bound[0].ravel().tolist() == [abs(int(x)) // 4 * (-1 if x < 0 else 1) for x in a]


def test_narrow_types_are_not_bound(run_both):
    _, bound = run_both("Add", np.ones(3, np.float16), np.ones(3, np.float16))
    assert bound is None


def test_clip(check, layouts):
    low, high = np.array(-0.5, np.float32), np.array(1, np.float32)
    for x in layouts((5, 9)):
        for bounds in [(), (low,), (low, high), (None, high), (None, None), (high, low)]:
            check("Clip", x, *bounds)
        check("Clip", x, version=6, min=-1.0, max=0.25)
    for x in (*layouts((130, 513)), *layouts((130, 513), np.float64), np.array([np.nan, np.inf, -np.inf, 2], np.float32)):
        for bounds in ({"min": -1.0, "max": 0.25}, {"min": 0.5}, {"max": 0.5}, {}):
            check("Clip", x, version=6, **bounds)


def test_bounds_of_large_arrays(check, layouts):
    for dtype in (np.float32, np.float64, np.int32, np.int8, np.uint8):
        for x in layouts((3, 50, 60), dtype):
            if np.dtype(dtype).kind != "u":
                check("Relu", x)
            low, high = np.array(3, dtype), np.array(20, dtype)
            for bounds in [(low,), (low, high), (None, high), (high, low)]:
                check("Clip", x, *bounds)


def test_gelu_forms(check, layouts):
    for x in [*layouts((40, 1000)), *layouts(()), *layouts((), np.float64)]:
        check("Gelu", x, approximate="tanh", tolerance=1e-6)
    for x in layouts((40, 1000)):
        check("QuickGelu", x, domain=MICROSOFT, tolerance=1e-6)
        for op_type in ("BiasGelu", "FastGelu"):
            check(op_type, x, layouts((1000,))[0], domain=MICROSOFT, tolerance=1e-6)
        check("FastGelu", x, domain=MICROSOFT, tolerance=1e-6)


def test_the_error_function_is_right_to_a_few_units_in_the_last_place():
    x = np.concatenate([np.linspace(-6, 6, 200_001), np.geomspace(1e-30, 1, 1000), [0.0, -0.0]]).astype(np.float32)
    found = np.empty_like(x)
    erf_float32(x, found)
    np.testing.assert_allclose(found, [math.erf(value) for value in x.tolist()], rtol=4e-7, atol=0)
    gelu_float32(x, found)
    expected = [value * (math.erf(value * math.sqrt(0.5)) + 1) / 2 for value in x.tolist()]
    np.testing.assert_allclose(found, expected, rtol=4e-7, atol=4e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, np.bool_])
def test_moved_elements(check, layouts, dtype):
    for x, y in zip(layouts((3, 4, 5), dtype), layouts((3, 1, 5), dtype, seed=1), strict=True):
        for axis in (1, -2):
            check("Concat", x, y, x, axis=axis)
        check("Where", layouts((4, 5), np.bool_)[1], x, y)
        check("Expand", y, np.array([2, 3, 4, 5]))
        for axis in range(-3, 3):
            check("Gather", x, np.array([[2, 0], [-1, -3]]), axis=axis)
            check("Gather", x, np.array(1, np.int32), axis=axis)
            check("Gather", x, np.zeros((0,), np.int64), axis=axis)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, np.bool_])
def test_gathered_slices(check, layouts, dtype):
    for x in layouts((3, 4, 5), dtype):
        for axis in range(-3, 3):
            for place in (2, -3, 0):
                check("Gather", x, np.array(place), axis=axis, constants=(1,))


PADS = [[0, 2, 0, 1], [2, 3, 1, 3], [0, 0, 0, 0], [9, 0, 7, 4], [1, 0, 0, 0], [-1, 2, 2, 0], [0, -1, 0, -1]]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16, np.bool_])
def test_padding(check, layouts, mode, dtype):
    for x in layouts((3, 4), dtype):
        for pads in PADS:
            check("Pad", x, np.array(pads), mode=mode)
            check("Pad", x, np.array(pads), np.array(1, dtype), mode=mode)
    for x in layouts((2, 3, 5), dtype):
        check("Pad", x, np.array([2, 1, 1, 3]), np.array(1, dtype), np.array([-1, 1]), mode=mode)
        check("Pad", x, np.array([2, 1]), None, np.array([2]), mode=mode)
    check("Pad", np.zeros((1, 4), dtype), np.array([2, 0, 2, 0]), mode=mode)


def test_padding_of_what_is_empty_or_no_axes(check):
    check("Pad", np.zeros((0, 3), np.float32), np.array([1, 0, 1, 0]), np.array(2, np.float32))
    check("Pad", np.array(3, np.float32), np.zeros(0, np.int64))


def test_gather_out_of_range_is_refused(make_kernel):
    kernel = make_kernel("Gather", (np.ones(3, np.float32), np.array([0])), {}, "", None, (), (NodeArg("y", "tensor(float)"),))
    indices = SimpleNamespace(array=np.array([0]), is_fixed=False)
    data = SimpleNamespace(array=np.ones(3, np.float32), is_fixed=True)
    call = kernel.bind([data, indices], [SimpleNamespace(array=np.empty(1, np.float32), is_fixed=True)])
    call()
    for outside in (3, -4):
        indices.array = np.array([outside])
        with pytest.raises(Exception, match="outside axis 0"):
            call()


def test_casts_to_floats(check, run_both, layouts):
    for dtype in (np.int32, np.bool_, np.float64, np.uint8):
        for x in layouts((3, 5), dtype):
            check("Cast", x, to=1)


@pytest.mark.parametrize("target", [TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64])
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_casts_of_floats_to_integers(check, layouts, source, target):
    for x in layouts((3, 5), source):
        check("Cast", 40 * x, to=target)


@pytest.mark.parametrize(("source", "target"), [(np.float16, np.float32), (np.float32, np.float16)])
def test_casts_of_halves_that_lie_otherwise(run_both, source, target):
    x = np.random.default_rng(0).standard_normal((2, 30, 7, 5)).astype(source)
    last = np.moveaxis(x, -1, 1)
    for given in (x, last, last[:, 1:4], x[:, ::-1], np.broadcast_to(x[:1], x.shape), x[:, :, :1]):
        found, bound = run_both("Cast", given, to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))
        np.testing.assert_array_equal(found[0], given.astype(target))
        # x86 converts float16 with instructions that come with AVX2
        assert (bound is not None) == (instruction_set() >= InstructionSet.AVX2)
        if bound is not None:
            np.testing.assert_array_equal(bound[0], found[0])


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"])
def test_reductions(check, layouts, op_type):
    for shape in [(), (5,), (2, 3, 4), (3, 0)]:
        if op_type == "ReduceMean" and 0 in shape:
            continue
        for x in layouts(shape):
            for axes in ([], list(range(len(shape))), [-1], [0])[: 2 if not shape else 4]:
                for options in ({"keepdims": 0}, {"keepdims": 1}, {"noop_with_empty_axes": 1}):
                    check(op_type, x, np.array(axes, np.int64), tolerance=1e-6, **options)
    for x in layouts((3, 1, 4, 1)):
        for axes in ([1], [1, 3], [-1], [0, 1]):
            check(op_type, x, np.array(axes, np.int64), tolerance=1e-6, keepdims=len(axes) % 2)
    for x in layouts((3, 4), np.int32):
        if op_type != "ReduceMean":
            check(op_type, x, np.array([1]))


def test_the_index_names_what_the_modules_bind_or_compute():
    listed = {
        (domain, name) for domains in operator_modules.MODULES.values() for domain, names in domains.items() for name in names
    }
    for domain, name in listed:
        assert operator_modules.load(domain, name)
    assert set(BINDERS) | set(DIRECT_CALLS) == listed
    assert listed <= set(kernel_registry().operators())


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_places_of_extremes(check, layouts, op_type, axis, keepdims):
    for x in layouts((3, 4, 5)):
        check(op_type, x, axis=axis, keepdims=keepdims)
    check(op_type, np.array([[2, 1, 2], [0, 0, -1]]), axis=axis, keepdims=keepdims)
