"""Cast, CastLike and BitCast against onnxruntime, ml_dtypes and the tables of the specification."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest
from onnx import TensorProto, helper

from ort_sdk.api import InvalidArgument, TensorElementType
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same, compare, make_model, run_reference, run_sdk

E = TensorElementType
NATIVE = [E.FLOAT, E.DOUBLE, E.FLOAT16, E.INT8, E.INT16, E.INT32, E.INT64, E.UINT8, E.UINT16, E.UINT32, E.UINT64, E.BOOL]
FLOAT8 = [E.FLOAT8E4M3FN, E.FLOAT8E4M3FNUZ, E.FLOAT8E5M2, E.FLOAT8E5M2FNUZ]
VALUES = np.array([0, 1, -1, 2.5, -2.5, 3.5, 7, -8, 100, -100, 127, 1e-3, 0.3, 17.6], np.float32)


def cast(values, target, *, opset=25, **attributes):
    return run_kernel("Cast", [values], [target], opset=opset, attributes={"to": int(target), **attributes}, library=np)[0]


@pytest.mark.parametrize("source", NATIVE)
@pytest.mark.parametrize("target", NATIVE)
@pytest.mark.parametrize("version", [6, 9, 13, 19])
def test_native_types_as_onnxruntime(source, target, version):
    values = np.abs(VALUES) if source.onnx_name.startswith("u") else VALUES
    compare("Cast", [values.astype(source.numpy_dtype)], opset=version, attributes={"to": int(target)}, rtol=0, atol=0)


@pytest.mark.parametrize("source", [E.FLOAT, E.DOUBLE, E.FLOAT16])
@pytest.mark.parametrize("target", [E.INT8, E.UINT8, E.INT16, E.UINT16, E.INT64])
def test_integers_wrap_floats_beyond_them(source, target):
    values = np.array([300.7, -5.5, -300, 1000], source.numpy_dtype)
    compare("Cast", [values], opset=13, attributes={"to": int(target)}, rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(65536,), (3, 65536), (0,), ()])
def test_every_half_becomes_the_same_single(shape):
    float16 = np.resize(np.arange(65536, dtype=np.uint16), shape).view(np.float16)
    expected = float16.astype(np.float32).view(np.uint32)
    for values in (float16, float16.T):
        result = cast(values, E.FLOAT)
        assert result.flags.writeable
        np.testing.assert_array_equal(result.view(np.uint32), expected if values is float16 else expected.T, strict=True)


def _through_onnxruntime(values, target, saturate):
    """float32 → target → float32 in one model: onnxruntime takes no float8 arrays from Python."""
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=int(target), saturate=saturate),
        helper.make_node("Cast", ["narrow"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(
        nodes,
        "casts",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, values.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, values.shape)],
    )
    return run_reference(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10), {"x": values})[0]


@pytest.mark.parametrize("target", FLOAT8)
@pytest.mark.parametrize("saturate", [0, 1])
def test_float8_as_onnxruntime(target, saturate):
    values = np.concatenate([VALUES, np.linspace(-479, 479, 999, dtype=np.float32), np.float32([np.nan, 1e30, -1e30, 57344])])
    actual = cast(values, target, saturate=saturate).astype(np.float32)
    np.testing.assert_array_equal(actual, _through_onnxruntime(values, target, saturate))


FLOAT8_SPECIAL = {
    (E.FLOAT8E4M3FN, 1): [np.nan, 448, -448, 448],
    (E.FLOAT8E4M3FN, 0): [np.nan, np.nan, np.nan, np.nan],
    (E.FLOAT8E4M3FNUZ, 1): [np.nan, 240, -240, 240],
    (E.FLOAT8E4M3FNUZ, 0): [np.nan, np.nan, np.nan, np.nan],
    (E.FLOAT8E5M2, 1): [np.nan, 57344, -57344, 57344],
    (E.FLOAT8E5M2, 0): [np.nan, np.inf, -np.inf, np.inf],
    (E.FLOAT8E5M2FNUZ, 1): [np.nan, 57344, -57344, 57344],
    (E.FLOAT8E5M2FNUZ, 0): [np.nan, np.nan, np.nan, np.nan],
}


@pytest.mark.parametrize(("target", "saturate"), FLOAT8_SPECIAL)
@pytest.mark.parametrize("source", [np.float32, np.float64])
def test_float8_special_values_as_the_specification(target, saturate, source):
    values = np.array([np.nan, np.inf, -np.inf, 1e6], source)
    np.testing.assert_array_equal(cast(values, target, saturate=saturate).astype(np.float64), FLOAT8_SPECIAL[target, saturate])


@pytest.mark.parametrize(
    ("round_mode", "saturate", "values", "codes"),
    [
        ("up", 1, [0, 1, 1.1, 1.5, 1.9, 3e38, np.inf, np.nan, 1e-40], [0, 127, 128, 128, 128, 254, 254, 255, 0]),
        ("down", 1, [0, 1, 1.1, 1.5, 1.9, 3e38, np.inf, np.nan, 1e-40], [0, 127, 127, 127, 127, 254, 254, 255, 0]),
        ("nearest", 1, [1, 1.1, 1.5, 1.9, 0.75, 0.7], [127, 127, 128, 128, 127, 126]),
        ("nearest", 0, [0, 1.5, np.inf, np.nan, 1e-40], [255, 128, 255, 255, 255]),
    ],
)
def test_float8e8m0_rounds_to_powers_of_two(round_mode, saturate, values, codes):
    actual = cast(np.array(values, np.float32), E.FLOAT8E8M0, round_mode=round_mode, saturate=saturate)
    assert actual.view(np.uint8).tolist() == codes


@pytest.mark.parametrize(
    ("target", "expected"),
    [(E.INT4, [7, -8, -1, 4]), (E.UINT4, [7, 8, 15, 4]), (E.INT2, [-1, 0, -1, 0]), (E.UINT2, [3, 0, 3, 0])],
)
@pytest.mark.parametrize("source", [np.float32, np.int64, np.int8])
def test_sub_byte_integers_discard_high_bits(target, expected, source):
    assert cast(np.array([7, 8, -1, 100], source), target).astype(np.int64).tolist() == expected


@pytest.mark.parametrize("source", [E.INT4, E.UINT4, E.INT2, E.UINT2, E.FLOAT4E2M1, E.BFLOAT16, *FLOAT8])
@pytest.mark.parametrize("target", [E.FLOAT, E.INT8, E.BOOL, E.BFLOAT16, E.UINT4, E.FLOAT8E8M0, E.FLOAT4E2M1])
def test_narrow_types_keep_small_values(source, target):
    values = np.array([1, 1, 1], np.float32).astype(source.numpy_dtype)
    assert cast(values, target).astype(np.float32).tolist() == [1, 1, 1]


def test_float4_saturates():
    actual = cast(np.array([0.4, -0.75, 2.4, 100, -np.inf], np.float32), E.FLOAT4E2M1).astype(np.float32)
    assert actual.tolist() == [0.5, -1, 2, 6, -6]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_numbers_to_text_as_onnxruntime(dtype):
    values = np.array([1, 0.1, 1e4, 314.15926, 1e-7, np.nan, np.inf, -np.inf, -0.0, 0.47892547, 1234567.9], np.float64)
    with np.errstate(over="ignore"):
        compare("Cast", [values.astype(dtype)], opset=13, attributes={"to": int(E.STRING)})


@pytest.mark.parametrize("values", [np.array([-5, 7, 2**62]), np.array([2**64 - 1], np.uint64), np.array([[True], [False]])])
def test_integers_to_text_as_onnxruntime(values):
    compare("Cast", [values], opset=13, attributes={"to": int(E.STRING)})


@pytest.mark.parametrize(
    ("texts", "target"),
    [
        (["1e3", "inf", "-InF", "+INF", "nan", "3.25", " 7"], E.FLOAT),
        (["1e300", "0.1"], E.DOUBLE),
        (["-3", "+4", "12"], E.INT32),
        (["9223372036854775807"], E.INT64),
        (["18446744073709551615"], E.UINT64),
        (["1.7", "3"], E.INT16),
        (["-3", "300"], E.UINT8),
        (["1", "0"], E.BOOL),
    ],
)
def test_text_to_numbers_as_onnxruntime(texts, target):
    compare("Cast", [np.array(texts, dtype=object)], opset=13, attributes={"to": int(target)}, rtol=0, atol=0)


def test_text_to_narrow_numbers():
    texts = np.array(["1.5", "-2"], dtype=object)
    assert cast(texts, E.BFLOAT16).astype(np.float32).tolist() == [1.5, -2]
    assert cast(texts, E.INT4).astype(np.int64).tolist() == [1, -2]
    assert cast(np.array(["1e2"], dtype=object), E.INT32).tolist() == [100]


def test_text_that_is_no_number_is_refused():
    with pytest.raises(InvalidArgument, match="each must spell"):
        cast(np.array(["abc"], dtype=object), E.FLOAT)


def test_cast_to_the_same_type_is_a_copy():
    assert not np.shares_memory(cast(VALUES, E.FLOAT), VALUES)


def test_unknown_target_is_refused():
    with pytest.raises(InvalidArgument, match="no element type"):
        run_kernel("Cast", [VALUES], [E.FLOAT], opset=13, attributes={"to": 99}, library=np)


@pytest.mark.parametrize("version", [15, 19])
def test_cast_like_as_onnxruntime(version):
    compare("CastLike", [VALUES, np.zeros(1, np.int32)], opset=version, rtol=0, atol=0)


@pytest.mark.parametrize("target", [E.INT32, E.DOUBLE, E.BOOL])
def test_cast_over_a_strict_library(target):
    (actual,) = run_kernel("Cast", [VALUES], [target], opset=13, attributes={"to": int(target)}, library=array_api_strict)
    assert_same(actual, VALUES.astype(target.numpy_dtype), 0, 0)


@pytest.mark.parametrize(
    ("values", "target", "expected"),
    [
        (np.array([1, -2], np.float32), E.INT32, [0x3F800000, -0x40000000]),
        (np.array([1.0], np.float16), E.BFLOAT16, [0.0078125]),
        (np.array([255, 1], np.uint8), E.INT8, [-1, 1]),
        (np.array([15, 7], np.int8).astype(E.UINT4.numpy_dtype), E.INT4, [-1, 7]),
        (np.array([-1, 7], np.int8).astype(E.INT4.numpy_dtype), E.UINT4, [15, 7]),
        (np.array([7, 2], np.int8).astype(E.UINT4.numpy_dtype), E.FLOAT4E2M1, [6, 1]),
    ],
)
def test_bit_cast_keeps_bits(values, target, expected):
    (actual,) = run_kernel("BitCast", [values], [target], opset=26, attributes={"to": int(target)}, library=np)
    assert actual.dtype == target.numpy_dtype
    assert actual.astype(np.float64).tolist() == expected


def test_bit_cast_of_another_width_is_refused():
    with pytest.raises(InvalidArgument, match="same width"):
        run_kernel("BitCast", [VALUES], [E.INT64], opset=26, attributes={"to": int(E.INT64)}, library=np)


def test_bit_cast_takes_transposed_views():
    view = np.arange(6, dtype=np.float32).reshape(2, 3).T
    (actual,) = run_kernel("BitCast", [view], [E.UINT32], opset=26, attributes={"to": int(E.UINT32)}, library=np)
    assert actual.tolist() == np.ascontiguousarray(view).view(np.uint32).tolist()


def test_session_casts_constants_and_feeds_to_the_same():
    model, feeds = make_model("Cast", [VALUES], opset=13, attributes={"to": int(E.INT64)}, constants=(0,), output_types=[7])
    assert run_sdk(model, feeds)[0].tolist() == VALUES.astype(np.int64).tolist()


def test_float8e4m3fn_is_nan_from_the_first_number_beyond_its_range():
    values = np.array([464, 465, 480, 495, 496], np.float32)
    np.testing.assert_array_equal(cast(values, E.FLOAT8E4M3FN, saturate=0).astype(np.float32), [448, *[np.nan] * 4])


@pytest.mark.parametrize("target", [member for member in E if member and "COMPLEX" not in member.name])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 1)])
def test_every_type_of_every_shape(target, shape):
    for source in (E.FLOAT, E.INT8, E.STRING, E.FLOAT6E2M3, E.UINT4, E.BOOL):
        values = np.full(shape, "1" if source is E.STRING else 1.0, dtype=object if source is E.STRING else np.float32)
        actual = cast(values.astype(source.numpy_dtype), target, opset=28)
        assert actual.shape == shape
        assert actual.dtype == target.numpy_dtype
        assert all(float(value) == 1 for value in actual.reshape(-1).tolist())
