"""Chains of element-wise operators on other types than float32, and on several, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

import ort_sdk as ort
from ort_sdk.run import types

node = helper.make_node
pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=libraries.compiled_kernels().reason)

INTEGERS = [np.int64, np.int32, np.int8, np.uint8]


@pytest.fixture(autouse=True)
def compile_at_once(monkeypatch):
    """Programs are fused when they are replayed for the first time."""
    monkeypatch.setattr(types, "SECONDS_BEFORE_COMPILING", -1.0)


def _type(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _model(nodes, inputs, outputs, opset=20):
    infos = [helper.make_tensor_value_info(name, _type(array.dtype), array.shape) for name, array in inputs.items()]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, "graph", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9).SerializeToString()


def _fused(model, feeds):
    """Results of a replay by fused kernels, and which operators were fused."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for _ in range(3):
        session.run(None, feeds)
    results = session.run(None, feeds)
    return results, [group for row in session.program_report() for group in row.fused]


def _theirs(model, feeds):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)


def _numbers(dtype, *shape, seed=0):
    dtype, random = np.dtype(dtype), np.random.default_rng((seed, *shape))
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    bounds = np.iinfo(dtype)
    return random.integers(max(bounds.min, -100), min(bounds.max, 100), shape).astype(dtype)


@pytest.mark.parametrize("shape", [(7,), (16,), (33,), (3, 5, 17), (2, 40_000)])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.float64])
def test_arithmetic(dtype, shape):
    x, y, column = _numbers(dtype, *shape), _numbers(dtype, *shape, seed=1), _numbers(dtype, *shape[:-1], 1, seed=2)
    y[y == 0] = 1
    nodes = [
        *(node("Add", ["x", "y"], ["a"]), node("Sub", ["a", "column"], ["s"]), node("Mul", ["s", "x"], ["m"])),
        *(node("Div", ["m", "y"], ["q"]), node("Neg", ["q"], ["n"]), node("Abs", ["s"], ["p"])),
        *(node("Max", ["n", "p"], ["u"]), node("Min", ["u", "m"], ["result"]), node("Less", ["n", "x"], ["less"])),
        *(node("Greater", ["n", "y"], ["greater"]), node("Equal", ["n", "column"], ["equal"])),
        node("Where", ["less", "n", "x"], ["chosen"]),
    ]
    types = {"result": _type(dtype), "chosen": _type(dtype)}
    types |= dict.fromkeys(("less", "greater", "equal"), TensorProto.BOOL)
    feeds = {"x": x, "y": y, "column": column}
    model = _model(nodes, feeds, types)
    results, groups = _fused(model, feeds)
    for result, expected in zip(results, _theirs(model, feeds), strict=True):
        np.testing.assert_array_equal(result, expected)
    assert sum(map(len, groups)) == len(nodes)


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_quotients_at_the_limits(dtype):
    least, largest = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([least, least, largest, largest, -7, 7, -7, 5, 0, least, largest, least + 1, 123], dtype)
    y = np.array([-1, 1, -1, largest, 2, -2, -2, 0, 0, 0, least, largest, least], dtype)
    model = _model(
        [node("Div", ["x", "y"], ["q"]), node("Add", ["q", "zero"], ["z"])], {"x": x, "y": y, "zero": x * 0}, {"z": _type(dtype)}
    )
    (result,), groups = _fused(model, {"x": x, "y": y, "zero": x * 0})
    truncated = [
        0 if b == 0 else abs(int(a)) // abs(int(b)) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(x, y, strict=True)
    ]
    truncated[0] = least
    assert result.tolist() == truncated
    assert groups == [("Div", "Add")]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bounds_and_bits(dtype):
    x, y = _numbers(dtype, 5, 37), _numbers(dtype, 37, seed=1)
    low, high = np.array(-3 if np.dtype(dtype).kind == "i" else 3, dtype), np.array(50, dtype)
    nodes = [
        *(node("BitwiseAnd", ["x", "y"], ["a"]), node("BitwiseOr", ["a", "y"], ["o"]), node("BitwiseXor", ["o", "x"], ["e"])),
        *(node("BitwiseNot", ["e"], ["n"]), node("Clip", ["n", "low", "high"], ["c"]), node("Clip", ["n", "", "high"], ["d"])),
        *(node("Max", ["c", "x"], ["largest"]), node("Min", ["d", "y", "x"], ["least"])),
    ]
    feeds = {"x": x, "y": y, "low": low, "high": high}
    model = _model(nodes, feeds, {"largest": _type(dtype), "least": _type(dtype)})
    results, groups = _fused(model, feeds)
    n = ~(((x & y) | y) ^ x)
    np.testing.assert_array_equal(results[0], np.maximum(np.clip(n, low, high), x))
    np.testing.assert_array_equal(results[1], np.minimum(np.minimum(np.minimum(n, high), y), x))
    assert sum(map(len, groups)) == len(nodes)


_TARGETS = (np.float32, np.float64, np.float16, *INTEGERS, np.bool_)
_CASTS = [(source, target) for source in (*INTEGERS, np.bool_) for target in _TARGETS]
_CASTS += [(np.float32, np.float16), (np.float16, np.float32), (np.float32, np.float64), (np.float64, np.float32)]
_CASTS += [(np.float32, np.bool_), (np.float64, np.bool_), (np.float32, np.int8), (np.float32, np.uint8)]
_CASTS += [(source, target) for source in (np.float32, np.float64) for target in (np.int32, np.int64)]


def _is_compiled(source, target):
    """float16, and floats to integers as NumPy rounds them, take instructions that come with AVX2."""
    takes_instructions = target is np.float16 or (np.dtype(source).kind == "f" and np.dtype(target).kind in "iu")
    return source is not np.float16 and (instruction_set() >= InstructionSet.AVX2 or not takes_instructions)


@pytest.mark.parametrize(("source", "target"), [pair for pair in _CASTS if pair[0] is not pair[1]])
def test_casts(source, target):
    x = _numbers(np.int64, 3, 50) * 3
    x = (x * np.float32(0.37) if np.dtype(source).kind == "f" else x).astype(source)
    if np.dtype(source).kind == "f":
        x[0, :6] = [np.nan, np.inf, -np.inf, 0, -0.0, 1e-5]
    if source in {np.float32, np.float64}:
        edges = [2.0**31, -(2.0**31), 2.0**31 - 128, 2.0**63, -(2.0**63), 2.0**63 - 2.0**39, 1e20]
        x[1, :15] = [255.9, 256, -1, -1.9, 70_000, -70_001, 3e9, -3e9, *edges]
    first = node("And", ["x", "c"], ["w"]) if source is np.bool_ else node("Where", ["c", "x", "x"], ["w"])
    nodes, feeds = [first, node("Cast", ["w"], ["y"], to=_type(target))], {"x": x, "c": np.ones((1, 50), bool)}
    model = _model(nodes, feeds, {"y": _type(target)})
    (result,), groups = _fused(model, feeds)
    np.testing.assert_array_equal(result, _theirs(model, feeds)[0])
    assert sum(map(len, groups)) == (2 if _is_compiled(source, target) else 0)
    assert result.dtype == target


def test_types_change_inside_a_chain():
    x = _numbers(np.uint8, 3, 41, 10)
    nodes = [
        *(node("Cast", ["x"], ["f"], to=TensorProto.FLOAT), node("Mul", ["f", "f"], ["m"]), node("Equal", ["x", "x"], ["e"])),
        *(node("Cast", ["e"], ["i"], to=TensorProto.INT64), node("Cast", ["i"], ["j"], to=TensorProto.FLOAT)),
        node("Add", ["m", "j"], ["y"]),
    ]
    (result,), groups = _fused(_model(nodes, {"x": x}, {"y": TensorProto.FLOAT}), {"x": x})
    np.testing.assert_array_equal(result, x.astype(np.float32) ** 2 + 1)
    assert sum(map(len, groups)) == len(nodes)


_SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, -1e-42, 1e38, -1e38, 1, -1, 88.8, -104, 0.5, -0.5], np.float32)


@pytest.mark.parametrize("x", [_SPECIAL, _numbers(np.float32, 70_000) * 4], ids=["special", "usual"])
@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        *(("Celu", {}), ("Celu", {"alpha": 0.3}), ("Elu", {}), ("Elu", {"alpha": 2.0}), ("Elu", {"alpha": -2.0}), ("Mish", {})),
        *(("Selu", {}), ("Shrink", {}), ("Shrink", {"bias": 0.2, "lambd": 1.5}), ("Sign", {}), ("Softsign", {})),
        *(("ThresholdedRelu", {}), ("ThresholdedRelu", {"alpha": 0.1})),
    ],
)
def test_activations_beside_the_single_operators(op_type, attributes, x):
    nodes = [node(op_type, ["x"], ["a"], **attributes), node("Abs", ["a"], ["y"])]
    model = _model(nodes, {"x": x}, {"y": TensorProto.FLOAT})
    (result,), groups = _fused(model, {"x": x})
    options = ort.SessionOptions()
    options.add_session_config_entry("session.disable_programs", "1")
    (expected,) = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(result, expected, rtol=3e-6, atol=1e-37)
    assert groups == ([(op_type, "Abs")] if attributes.get("alpha", 1) > 0 else [])


def test_means_and_what_is_not_a_number():
    x, y = _SPECIAL, _numbers(np.float32, 3, len(_SPECIAL))
    nodes = [node("Mean", ["x", "y", "y"], ["m"]), node("IsNaN", ["m"], ["n"]), node("Where", ["n", "y", "m"], ["z"])]
    (result,), groups = _fused(_model(nodes, {"x": x, "y": y}, {"z": TensorProto.FLOAT}), {"x": x, "y": y})
    mean = (x + y + y) / np.float32(3)
    np.testing.assert_array_equal(result, np.where(np.isnan(mean), y, mean))
    assert groups == [("Mean", "IsNaN", "Where")]
