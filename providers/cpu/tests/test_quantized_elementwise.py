"""QLinearAdd and its kin as compiled tasks: what NumPy gives, whatever the shapes and layouts."""

from types import SimpleNamespace

import numpy as np
import pytest
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.quantized.elementwise import _FixedTasks

from ort_sdk.api import NodeArg, tensor_type
from ort_sdk.api.element_type import element_type_of

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba is not installed")

MICROSOFT = "com.microsoft"
TYPES = [np.uint8, np.int8]


def of_type(rng, dtype, *shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def pair(scale, zero_point, dtype):
    return [np.array(scale, np.float32), np.array(zero_point, dtype)]


def channels_last(array):
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


FEWEST = "ort_sdk_cpu.kernel.eager_tasks.MIN_QUANTIZED_ELEMENTS"


@pytest.fixture(autouse=True)
def always_compiled():
    """Small arrays take the tasks, too, where they are bound, and none does otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ort_sdk_cpu.kernel.task_writer.MIN_ELEMENTS", 0)
        patch.setattr(FEWEST, 1 << 40)
        yield


@pytest.fixture
def both(run_both, make_kernel, monkeypatch):
    """What NumPy and what the task gives; fails if a task was for other arrays. The output has the layout given."""

    def run(op_type, *inputs, is_compiled=True, lying=np.ascontiguousarray, **attributes):
        seen = []
        make = _FixedTasks.bind_arrays

        def bind_arrays(self, *arrays):
            call = make(self, *arrays)
            seen.append(call is not None)
            return call

        constants = tuple(index for index, value in enumerate(inputs) if value.ndim == 0)
        (found,), (bound,) = run_both(op_type, *inputs, domain=MICROSOFT, constants=constants, **attributes)
        monkeypatch.setattr(_FixedTasks, "bind_arrays", bind_arrays)
        outputs = (NodeArg("y", tensor_type(element_type_of(found)), found.shape),)
        kernel = make_kernel(op_type, inputs, attributes, MICROSOFT, None, constants, outputs)
        out = lying(np.full(found.shape, 7, found.dtype))
        kernel.bind([FixedSlot(value) for value in inputs], [FixedSlot(out)])()
        monkeypatch.undo()
        assert seen == [is_compiled]
        np.testing.assert_array_equal(out, bound)
        return found, bound

    return run


SHAPES = [
    ((1, 64, 20, 20), (1, 64, 20, 20)),
    ((2, 17, 5, 7), (1, 17, 1, 1)),
    ((2, 17, 5, 7), (7,)),
    ((3, 1, 6, 1), (2, 1, 5)),
    ((70000,), (70000,)),
    ((5, 3), (1,)),
    ((4, 1, 3, 1, 2, 9), (4, 2, 3, 5, 1, 9)),
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize(("first", "second"), SHAPES, ids=str)
def test_additions_and_multiplications(both, op_type, first, second, dtype):
    rng = np.random.default_rng(1)
    a, b = of_type(rng, dtype, *first), of_type(rng, dtype, *second)
    scale = 0.08 if op_type == "QLinearAdd" else 0.11
    layouts = (np.asarray, channels_last) if len(first) == len(second) == 4 else (np.asarray,)
    is_compiled = len(first) < 6
    for layout in layouts:
        given = [layout(a), *pair(0.03, 5, dtype), layout(b), *pair(0.07, 9, dtype), *pair(scale, 3, dtype)]
        for operands in (given, [*given[3:6], *given[:3], *given[6:]]):
            found, bound = both(op_type, *operands, is_compiled=is_compiled, lying=layout)
            np.testing.assert_array_equal(bound, found)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(1, 3, 5, 7), (9001,), (2, 64, 9)], ids=str)
def test_functions_of_bytes(both, shape, dtype):
    x = of_type(np.random.default_rng(2), dtype, *shape)
    for layout in (np.asarray, channels_last) if len(shape) > 2 else (np.asarray,):
        given = [layout(x), *pair(0.04, 7, dtype), *pair(1 / 256, -128 if dtype == np.int8 else 0, dtype)]
        for op_type, attributes in (("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.2})):
            found, bound = both(op_type, *given, lying=layout, **attributes)
            np.testing.assert_array_equal(bound, found)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenations(both, axis, dtype):
    rng = np.random.default_rng(3)
    shapes = [[2, 8, 5, 6], [2, 8, 5, 6], [2, 8, 5, 6]]
    for number, shape in enumerate(shapes):
        shape[axis] += 70 * number
    arrays = [of_type(rng, dtype, *shape) for shape in shapes]
    for layout in (np.asarray, channels_last):
        triples = zip(arrays, (0.5, 0.3, 0.7), (3, 4, 5), strict=True)
        operands = [value for array, scale, zero in triples for value in (layout(array), *pair(scale, zero, dtype))]
        found, bound = both("QLinearConcat", *pair(0.5, 3, dtype), *operands, axis=axis, lying=layout)
        np.testing.assert_array_equal(bound, found)


@pytest.mark.parametrize("dtype", TYPES)
def test_one_channel_behind_others(both, dtype):
    rng = np.random.default_rng(4)
    arrays = [channels_last(of_type(rng, dtype, 2, 64, 5, 6)), of_type(rng, dtype, 2, 1, 5, 6)]
    operands = [value for array, scale in zip(arrays, (0.5, 0.3), strict=True) for value in (array, *pair(scale, 4, dtype))]
    found, bound = both("QLinearConcat", *pair(0.5, 3, dtype), *operands, axis=1, lying=channels_last)
    np.testing.assert_array_equal(bound, found)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1, 3, 61, 67), (2, 2, 40, 41), (2, 5, 1, 3000)], ids=str)
def test_many_short_rows(both, shape, threads):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ort_sdk_cpu.platform.libraries.thread_count", lambda: threads)
        _many_short_rows(both, shape)


def _many_short_rows(both, shape):
    rng = np.random.default_rng(7)
    arrays = [channels_last(of_type(rng, np.uint8, *shape)) for _ in range(3)]
    same, other = pair(0.5, 3, np.uint8), pair(0.3, 4, np.uint8)
    triples = [value for array, own in zip(arrays, (same, other, same), strict=True) for value in (array, *own)]
    found, bound = both("QLinearConcat", *same, *triples, axis=1, lying=channels_last)
    np.testing.assert_array_equal(bound, found)
    for op_type in ("QLinearAdd", "QLinearMul"):
        factors = of_type(rng, np.uint8, shape[1], 1, 1)
        found, bound = both(op_type, *triples[:3], factors, *triples[4:6], *same, lying=channels_last)
        np.testing.assert_array_equal(bound, found)


def test_views_of_other_layouts(both):
    rng = np.random.default_rng(6)
    x = of_type(rng, np.uint8, 2, 6, 10, 64)
    halves = [x[..., 32:].transpose(0, 2, 1, 3), x.transpose(0, 2, 1, 3)[..., :32]]
    parameters = [pair(scale, 4, np.uint8) for scale in (0.5, 0.3)]
    triples = [value for half, own in zip(halves, parameters, strict=True) for value in (half, *own)]
    result = pair(0.4, 3, np.uint8)
    found, bound = both("QLinearConcat", *result, *triples, axis=-1)
    np.testing.assert_array_equal(bound, found)
    found, bound = both("QLinearAdd", *triples[:3], np.asfortranarray(halves[1]), *triples[4:], *result)
    np.testing.assert_array_equal(bound, found)


def assert_within_one_step(found, expected):
    """What is between two integers may be rounded to either: float32 rounded it before."""
    difference = np.abs(found.astype(np.int64) - expected)
    assert difference.max() <= 1
    assert (difference > 0).mean() < 5e-3


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(2, 64, 7, 7), (3, 37, 5), (1, 2048, 7, 7), (1, 5, 40, 41)], ids=str)
def test_means_of_pixels(both, shape, dtype):
    x = of_type(np.random.default_rng(4), dtype, *shape)
    parameters = [*pair(0.05, 7, dtype), *pair(0.0061, 4, dtype)]
    expected = (x.astype(np.float64) - 7).mean(axis=tuple(range(2, x.ndim)), keepdims=True) * np.float32(0.05)
    steps = np.rint(expected / np.float32(0.0061)) + 4
    limits = np.iinfo(dtype)
    for layout in (np.asarray, channels_last):
        _, bound = both("QLinearGlobalAveragePool", layout(x), *parameters)
        assert_within_one_step(bound, np.clip(steps, limits.min, limits.max))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 4, 16, 16), -1), ((2, 1000), -1), ((7, 5), -1), ((1, 16, 4, 37), 1), ((3, 21, 50), -2)], ids=str
)
@pytest.mark.parametrize("opset", [12, 13])
def test_softmax(both, shape, axis, opset, dtype):
    x = of_type(np.random.default_rng(5), dtype, *shape)
    parameters = [*pair(0.09, 7, dtype), *pair(1 / 256, -128 if dtype == np.int8 else 0, dtype)]
    powers = np.exp((x.astype(np.float64) - 7) * np.float32(0.09))
    summed = axis if opset >= 13 else tuple(range(axis % len(shape), len(shape)))
    steps = np.rint(powers / powers.sum(summed, keepdims=True) * 256) + int(parameters[-1])
    limits = np.iinfo(dtype)
    found, bound = both("QLinearSoftmax", x, *parameters, axis=axis, opset=opset)
    for result in (found, bound):
        assert_within_one_step(result, np.clip(steps, limits.min, limits.max))


@pytest.mark.parametrize("types", [(np.uint8, np.uint8), (np.int8, np.int8)])
@pytest.mark.parametrize("parameters", [((0.1, 3), (0.1, 3)), ((0.1, 3), (0.2, 5))])
@pytest.mark.parametrize("shapes", [((4, 30), (4, 30), (4, 30)), ((30,), (4, 1), (4, 30))])
def test_choices(run_both, types, parameters, shapes):
    rng = np.random.default_rng(0)
    condition, x, y = rng.random(shapes[0]) > 0.5, of_type(rng, types[0], *shapes[1]), of_type(rng, types[1], *shapes[2])
    inputs = (condition, x, *pair(*parameters[0], types[0]), y, *pair(*parameters[1], types[1]), *pair(0.1, 3, types[0]))
    (found,), (bound,) = run_both("QLinearWhere", *inputs, domain=MICROSOFT, constants=(2, 3, 5, 6, 7, 8))
    np.testing.assert_array_equal(bound, found)


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearConcat", "QLinearSigmoid", "QLinearGlobalAveragePool"])
def test_arrays_that_are_others_in_each_call(make_kernel, op_type):
    """The first two inputs are one array at first, and have another layout at last."""
    rng = np.random.default_rng(0)
    parameters = pair(0.1, 3, np.uint8)
    has_two = op_type in {"QLinearAdd", "QLinearConcat"}
    arrays = [of_type(rng, np.uint8, 2, 5, 6, 7) for _ in range(4)]

    def inputs(x, y):
        if op_type == "QLinearConcat":
            return [*parameters, x, *pair(0.2, 1, np.uint8), y, *pair(0.3, 9, np.uint8)]
        return [x, *parameters, *([y, *pair(0.2, 5, np.uint8)] if has_two else []), *parameters]

    attributes = {"axis": 1} if op_type == "QLinearConcat" else {}
    first = inputs(arrays[0], arrays[0])
    constants = tuple(index for index, value in enumerate(first) if value.ndim == 0)
    kernel = make_kernel(op_type, first, attributes, MICROSOFT, None, constants, (NodeArg("y", "tensor(uint8)"),))
    slots = [SimpleNamespace(array=value, is_fixed=value.ndim == 0) for value in first]
    output = SimpleNamespace(array=None, is_fixed=False)
    call = None
    permuted = channels_last(arrays[3])
    for x, y in (
        (arrays[0], arrays[0]),
        (arrays[1], arrays[2]),
        (arrays[2], arrays[1]),
        (permuted, arrays[0]),
        (arrays[0], permuted),
    ):
        given = inputs(x, y)
        expected = kernel.compute(*given)
        for slot, value in zip(slots, given, strict=True):
            slot.array = value
        output.array = np.full(expected.shape, 7, np.uint8)
        call = call or kernel.bind(slots, [output])
        call()
        np.testing.assert_array_equal(output.array, expected)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul", "QLinearSigmoid", "QuantizeLinear"])
def test_runs_without_a_program_take_the_task(make_kernel, monkeypatch, op_type, dtype):
    """As NumPy has it, and in the layout of the first input; inputs that are repeated are NumPy's."""
    rng = np.random.default_rng(1)
    domain, parameters = "" if op_type == "QuantizeLinear" else MICROSOFT, pair(0.1, 3, dtype)
    for shape, other in (((2, 5, 6, 7), (2, 5, 6, 7)), ((3, 4, 5, 6), (4, 1, 1)), ((1, 4, 5, 6), (3, 4, 5, 6))):
        x = of_type(rng, dtype, *shape) if domain else (rng.standard_normal(shape) * 5).astype(np.float32)
        second = [of_type(rng, dtype, *other), *pair(0.2, 5, dtype)] if op_type in {"QLinearAdd", "QLinearMul"} else []
        result = parameters if domain else []
        for lying in (np.ascontiguousarray, channels_last):
            given = [lying(x), *parameters, *second, *result]
            constants = tuple(index for index, value in enumerate(given) if value.ndim == 0)
            kernel = make_kernel(
                op_type, given, {}, domain, None, constants, (NodeArg("y", tensor_type(element_type_of(given[2]))),)
            )
            expected = kernel.compute(*given)
            with monkeypatch.context() as patch:
                patch.setattr(FEWEST, 0)
                found = kernel.compute(*given)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, expected)
            if not second or other == shape:
                assert found.strides == tuple(stride // x.itemsize for stride in given[0].strides)
