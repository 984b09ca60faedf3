"""ONNX's messages as they are read here, beside those of the ``onnx`` package."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from onnx import helper

from ort_sdk.api import InvalidProtobuf
from ort_sdk.formats.onnx.reader import messages
from ort_sdk.formats.onnx.reader.messages import NEWEST_IR_VERSION, parse_model
from ort_sdk.formats.onnx.reader.wire import Message, Payload


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


THEIRS = {
    messages.StringStringEntryProto: onnx.StringStringEntryProto,
    messages.OperatorSetIdProto: onnx.OperatorSetIdProto,
    messages.Segment: onnx.TensorProto.Segment,
    messages.TensorProto: onnx.TensorProto,
    messages.SparseTensorProto: onnx.SparseTensorProto,
    messages.Dimension: onnx.TensorShapeProto.Dimension,
    messages.TensorShapeProto: onnx.TensorShapeProto,
    messages.TensorType: onnx.TypeProto.Tensor,
    messages.ContainerType: onnx.TypeProto.Sequence,
    messages.MapType: onnx.TypeProto.Map,
    messages.OpaqueType: onnx.TypeProto.Opaque,
    messages.TypeProto: onnx.TypeProto,
    messages.ValueInfoProto: onnx.ValueInfoProto,
    messages.AttributeProto: onnx.AttributeProto,
    messages.NodeProto: onnx.NodeProto,
    messages.GraphProto: onnx.GraphProto,
    messages.FunctionProto: onnx.FunctionProto,
    messages.ModelProto: onnx.ModelProto,
}
WIRE_TYPES = {
    FieldDescriptor.TYPE_FLOAT: 5,
    FieldDescriptor.TYPE_DOUBLE: 1,
    FieldDescriptor.TYPE_STRING: 2,
    FieldDescriptor.TYPE_BYTES: 2,
    FieldDescriptor.TYPE_MESSAGE: 2,
}


def test_versions() -> None:
    assert onnx.IR_VERSION == NEWEST_IR_VERSION


@pytest.mark.parametrize(("ours", "theirs"), THEIRS.items(), ids=lambda cls: cls.__name__)
def test_fields(ours: type[Message], theirs: Any) -> None:
    by_number = theirs.DESCRIPTOR.fields_by_number
    for tag in ours.readers:
        described = by_number[tag >> 3]
        default = getattr(ours, described.name)
        is_list = isinstance(default, tuple)
        assert is_list == (described.is_repeated)
        assert tag & 7 in (WIRE_TYPES.get(described.type, 0), 2)
    one_of = [group for group in theirs.DESCRIPTOR.oneofs if group.name == "value"]
    assert set(ours.one_of) == {each.name for group in one_of for each in group.fields}


def check_same(ours: Message, theirs: Any, data: bytes) -> None:
    """Compare all that is read here."""
    present = {described.name for described, _ in theirs.ListFields()}
    for name in {each.name for each in theirs.DESCRIPTOR.fields} & {n for n in dir(type(ours)) if n != "parse"}:
        expected, found = getattr(theirs, name), getattr(ours, name)
        if isinstance(found, Payload):
            found = data[found.start : found.end]
        if isinstance(found, (tuple, list, np.ndarray)):
            assert len(found) == len(expected), name
            for mine, other in zip(found, expected, strict=True):
                check_value(mine, other, data)
        else:
            assert (name in vars(ours)) == (name in present), name
            check_value(found, expected, data)


def check_value(found: Any, expected: Any, data: bytes) -> None:
    if isinstance(found, Message):
        if vars(found):
            check_same(found, expected, data)
    elif isinstance(found, float | np.floating):
        np.testing.assert_equal(found, expected)
    elif isinstance(expected, bytes) and isinstance(found, str):
        assert found == expected.decode("utf-8", "surrogateescape")
    else:
        assert found == expected


def check_bytes(data: bytes) -> str:
    """Read with both; what came of it."""
    try:
        theirs = onnx.ModelProto.FromString(data)
    except DecodeError:
        theirs = None
    try:
        ours = parse_model(memoryview(data))
    except InvalidProtobuf as error:
        is_ours = any(text in str(error) for text in ("twice", "wire type"))  # what protobuf may allow
        return "refused" if theirs is None or is_ours else f"refused by us alone: {error}"
    if theirs is None:
        return "skipped"  # what is wrong is in a field that is not read
    check_same(ours, theirs, data)
    return "same"


def test_a_model(rich_model: onnx.ModelProto) -> None:
    assert check_bytes(rich_model.SerializeToString()) == "same"


def test_attributes_and_types() -> None:
    node = helper.make_node(
        "Op",
        ["a", "", "c"],
        ["d"],
        "n",
        domain="d",
        f=1.5,
        i=-3,
        s=b"\xff",
        floats=[0.1, 2.0],
        ints=[-1, 2**40],
        strings=["x", b"\xfe"],
    )
    node.attribute.append(helper.make_attribute("tp", helper.make_tensor_type_proto(1, [1, "n", None])))
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(7, None))
    types = [sequence, helper.make_optional_type_proto(sequence), helper.make_map_type_proto(7, sequence)]
    types += [
        helper.make_sparse_tensor_type_proto(1, [4]),
        onnx.TypeProto(opaque_type=onnx.TypeProto.Opaque(domain="d", name="n")),
    ]
    values = [helper.make_value_info(f"v{index}", each) for index, each in enumerate(types)]
    tensors = [
        helper.make_tensor("f", onnx.TensorProto.FLOAT, [3], [1.5, -2.0, float("nan")]),
        helper.make_tensor("d", onnx.TensorProto.DOUBLE, [2], [1.5, -2.0]),
        helper.make_tensor("i", onnx.TensorProto.INT64, [100], [(-3) ** index if index < 40 else -index for index in range(100)]),
        helper.make_tensor("j", onnx.TensorProto.INT32, [3], [-1, 2**31 - 1, -(2**31)]),
        helper.make_tensor("u", onnx.TensorProto.UINT64, [90], [2**64 - 1 - index for index in range(90)]),
        helper.make_tensor("s", onnx.TensorProto.STRING, [2], [b"a", b"c"]),
    ]
    graph = helper.make_graph([node], "g", values, values, tensors)
    assert check_bytes(helper.make_model(graph).SerializeToString()) == "same"


TENSOR_FIELDS = [
    field(1, varint(3) + varint(2**64 - 1)),  # a list that is packed though it is declared otherwise
    varint(1 << 3) + varint(7) + field(1, varint(3)),
    field(4, b"\0\0\x80?") + varint(4 << 3 | 5) + b"\0\0\0@" + field(4, b"\0\0@@"),
    varint(5 << 3) + varint(2**64 - 5) + field(5, varint(2**32 + 3)),
    varint(2 << 3) + varint(1) + varint(2 << 3) + varint(2**32 + 6),
    varint(14 << 3) + varint(9),  # no such place
    field(2, b"number"),  # a wire type that is not the field's
    varint(8 << 3) + varint(9),
    field(99, b"unknown") + varint(100 << 3) + varint(5) + varint(101 << 3 | 1) + bytes(8) + varint(102 << 3 | 5) + bytes(4),
    b"\xc2\x80\x00" + b"\x01x",  # a tag and a length longer than they must be
    field(3, varint(8) + varint(1)) + field(3, varint(16) + varint(2)),
]


@pytest.mark.parametrize("content", TENSOR_FIELDS)
def test_odd_forms_of_fields(content: bytes) -> None:
    assert check_bytes(field(7, field(5, content))) == "same"


def test_the_last_of_those_that_exclude_each_other_counts() -> None:
    dimension = varint(8) + varint(3) + field(2, b"n") + varint(8) + varint(4) + field(2, b"m")
    of_tensor = field(1, varint(8) + varint(1) + field(2, field(1, dimension)))
    for kinds in (of_tensor, of_tensor + field(4, b""), field(4, b"") + of_tensor, of_tensor + field(1, varint(8) + varint(7))):
        assert check_bytes(field(7, field(11, field(1, b"x") + field(2, kinds)))) == "same"


@pytest.mark.parametrize("content", [field(4, bytes(5)), field(10, bytes(12)), field(7, b"\x80" * 70), field(7, b"\x80")])
def test_lists_that_do_not_end_are_refused(content: bytes) -> None:
    assert check_bytes(field(7, field(5, content))) == "refused"


def changed(data: bytes, generator: random.Random) -> bytes:
    content = bytearray(data)
    for _ in range(generator.randrange(1, 4)):
        content[generator.randrange(len(content))] = generator.randrange(256)
    place = generator.randrange(len(content))
    if generator.random() < 0.3:
        content[place : place + generator.randrange(4)] = generator.randbytes(generator.randrange(4))
    return bytes(content)


def test_mutations(rich_model: onnx.ModelProto) -> None:
    data = rich_model.SerializeToString()
    generator = random.Random(11)
    outcomes = [check_bytes(changed(data, generator)) for _ in range(1500)]
    assert set(outcomes) <= {"same", "refused", "skipped"}
    assert outcomes.count("same") > 100
    assert outcomes.count("refused") > 100
    assert outcomes.count("skipped") < 20
