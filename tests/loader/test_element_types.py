"""Every element type in every form a tensor can have, against onnx's own decoder."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ort_sdk.api import InvalidGraph, OrtSdkError, TensorElementType
from ort_sdk.graph.tensor import pack_elements
from ort_sdk.loader import load_model

NUMBERS = [kind for kind in TensorElementType if kind not in (TensorElementType.UNDEFINED, TensorElementType.STRING)]


def values_of(kind: TensorElementType, count: int) -> np.ndarray:
    generator = np.random.default_rng(int(kind))
    dtype = kind.numpy_dtype
    if kind is TensorElementType.BOOL:
        return generator.integers(0, 2, count).astype(bool)
    if dtype.kind == "c":
        return (generator.standard_normal(count) + 1j * generator.standard_normal(count)).astype(dtype)
    if dtype.kind in "iu" and kind.bit_width >= 8:
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
    bits = generator.integers(0, 2 ** min(kind.bit_width, 7), count, dtype=np.uint8)
    if kind.bit_width <= 8:
        return bits.view(dtype) if dtype.kind == "V" else bits.astype(np.int8).astype(dtype)
    return generator.standard_normal(count).astype(dtype)


def typed_proto(kind: TensorElementType, values: np.ndarray) -> TensorProto:
    """The tensor with its elements in the typed field."""
    proto = TensorProto(name="w", data_type=int(kind), dims=values.shape)
    packed = pack_elements(values, kind)
    if kind in (TensorElementType.FLOAT, TensorElementType.COMPLEX64):
        proto.float_data.extend(packed.view(np.float32).tolist())
    elif kind in (TensorElementType.DOUBLE, TensorElementType.COMPLEX128):
        proto.double_data.extend(packed.view(np.float64).tolist())
    elif kind is TensorElementType.INT64:
        proto.int64_data.extend(values.tolist())
    elif kind in (TensorElementType.UINT32, TensorElementType.UINT64):
        proto.uint64_data.extend(values.tolist())
    elif kind in (TensorElementType.INT8, TensorElementType.INT16, TensorElementType.INT32):
        proto.int32_data.extend(values.tolist())
    elif kind.bit_width == 6:
        proto.int32_data.extend(values.view(np.uint8).tolist())
    else:
        proto.int32_data.extend(packed.view(np.uint16 if kind.bit_width == 16 else np.uint8).tolist())
    return proto


def load_initializer(add_model, proto, **options):
    model = load_model(add_model([proto]).SerializeToString(), **options)
    return model.graph.initializers["w"]


def comparable(array: np.ndarray) -> np.ndarray:
    """Bytes, so that NaNs compare; values of signed sub-byte integers, whose unused bits are free."""
    if array.dtype.name in ("int4", "int2"):
        return array.astype(np.int8)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def assert_same(tensor, proto, expected: np.ndarray) -> None:
    assert tensor.shape == tuple(proto.dims)
    assert tensor.element_type == proto.data_type
    found = tensor.numpy()
    assert found.dtype == expected.dtype
    assert not found.flags.writeable
    np.testing.assert_array_equal(comparable(found), comparable(expected))
    packed = tensor.packed()
    assert packed.dtype == np.uint8
    assert tensor.nbytes == len(packed) == tensor.element_type.nbytes(expected.size)
    np.testing.assert_array_equal(packed, pack_elements(expected, tensor.element_type))


@pytest.mark.parametrize("count", [6, 1001])
@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: kind.onnx_name)
def test_typed_field(add_model, kind, count) -> None:
    proto = typed_proto(kind, values_of(kind, count))
    assert_same(load_initializer(add_model, proto), proto, numpy_helper.to_array(proto))


@pytest.mark.parametrize("count", [6, 1001])
@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: kind.onnx_name)
def test_raw_data(add_model, kind, count) -> None:
    raw = pack_elements(values_of(kind, count), kind).tobytes()
    proto = TensorProto(name="w", data_type=int(kind), dims=[count], raw_data=raw)
    assert_same(load_initializer(add_model, proto), proto, numpy_helper.to_array(proto))


@pytest.mark.parametrize("offset", [0, 3])
@pytest.mark.parametrize("kind", NUMBERS, ids=lambda kind: kind.onnx_name)
def test_external_data(add_model, external_tensor, tmp_path, kind, offset) -> None:
    values = values_of(kind, 77)
    (tmp_path / "w.bin").write_bytes(bytes(offset) + pack_elements(values, kind).tobytes() + b"rest")
    proto = external_tensor(("location", "w.bin"), ("offset", str(offset)), dims=[7, 11], data_type=int(kind))
    tensor = load_initializer(add_model, proto, external_data_folder=tmp_path)
    assert_same(tensor, proto, values.reshape(7, 11))


@pytest.mark.parametrize("kind", [*NUMBERS, TensorElementType.STRING], ids=lambda kind: kind.onnx_name)
def test_no_elements(add_model, kind) -> None:
    proto = TensorProto(name="w", data_type=int(kind), dims=[3, 0])
    tensor = load_initializer(add_model, proto)
    assert tensor.shape == (3, 0)
    assert tensor.numpy().shape == (3, 0)
    assert tensor.nbytes == 0


def test_scalar(add_model) -> None:
    assert load_initializer(add_model, numpy_helper.from_array(np.float32(3), "w")).numpy() == 3


def test_strings_keep_bytes_that_are_not_utf8(add_model) -> None:
    proto = TensorProto(name="w", data_type=TensorProto.STRING, dims=[2, 1], string_data=["grün".encode(), b"\xff"])
    found = load_initializer(add_model, proto).numpy()
    assert found.shape == (2, 1)
    assert found[0, 0] == "grün"
    assert found[1, 0].encode("utf-8", "surrogateescape") == b"\xff"


@pytest.mark.parametrize("count", [3, 300])
def test_booleans_are_zero_or_one(add_model, count) -> None:
    proto = TensorProto(name="w", data_type=TensorProto.BOOL, dims=[count], raw_data=b"\x00\x02\xff" * (count // 3))
    tensor = load_initializer(add_model, proto)
    np.testing.assert_array_equal(tensor.numpy().view(np.uint8), [0, 1, 1] * (count // 3))
    np.testing.assert_array_equal(tensor.packed(), [0, 1, 1] * (count // 3))


@pytest.mark.parametrize("size", [8, 4 * 255, 4 * 257, 0])
@pytest.mark.parametrize("dims", [[256], [3]])
def test_raw_data_of_wrong_size(add_model, dims, size) -> None:
    proto = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=bytes(size))
    with pytest.raises(InvalidGraph, match=rf"'w'.*has {size} bytes of data; it needs {4 * dims[0]}"):
        load_initializer(add_model, proto)


def test_typed_field_of_wrong_size(add_model) -> None:
    proto = helper.make_tensor("w", TensorProto.INT4, [3], [1, 2, 3])
    proto.dims[0] = 5
    with pytest.raises(InvalidGraph, match=r"'w'.*has 2 entries in int32_data; it needs 3"):
        load_initializer(add_model, proto)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda proto: proto.dims.append(-1), "negative"),
        (lambda proto: proto.dims.extend([2**62, 2**62]), "more elements than can be addressed"),
        (lambda proto: proto.dims.extend([2**62, 2**62, 0]), "more elements than can be addressed"),
        (lambda proto: proto.dims.extend([1] * 100), "101 dimensions"),
        (lambda proto: proto.dims.extend([2**62] * 100_000), "dimensions"),
        (lambda proto: setattr(proto, "data_type", 0), "element type code 0"),
        (lambda proto: setattr(proto, "data_type", 99), "element type code 99"),
        (lambda proto: setattr(proto, "data_type", TensorProto.STRING), "strings in raw_data"),
        (lambda proto: proto.segment.MergeFrom(TensorProto.Segment(begin=0, end=16)), "segment"),
    ],
)
@pytest.mark.parametrize("count", [4, 400])
def test_broken_tensors(add_model, change, found, count) -> None:
    proto = numpy_helper.from_array(np.zeros(count, dtype=np.float32), "w")
    change(proto)
    with pytest.raises(OrtSdkError, match=found):
        load_initializer(add_model, proto)


def test_typed_fields_of_other_types_are_no_data(add_model) -> None:
    proto = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1], int32_data=[1])
    with pytest.raises(InvalidGraph, match="0 entries in float_data"):
        load_initializer(add_model, proto)


def test_all_element_types_of_onnx_are_covered() -> None:
    assert {kind.value for kind in TensorElementType} == set(onnx.TensorProto.DataType.values())
