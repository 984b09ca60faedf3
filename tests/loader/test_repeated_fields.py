"""Repeated numbers and strings of attributes, which are not packed: as protobuf reads them, in runs of any length."""

import itertools
import random

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError

from ort_sdk.api import InvalidProtobuf
from ort_sdk.formats.onnx.reader.messages import parse_model

COUNTS = [0, 1, 2, 7, 100, 4095, 4097, 70_000]
LARGE = [0, 1, 127, 128, -1, 2**31, 2**63 - 1, -(2**63), 300, 5]


def model_with(**attributes):
    node = onnx.NodeProto(op_type="Made", domain="made.up")
    node.attribute.extend(onnx.helper.make_attribute(name, value, attr_type=kind) for name, (value, kind) in attributes.items())
    graph = onnx.GraphProto(name="graph", node=[node])
    return onnx.ModelProto(ir_version=8, graph=graph, opset_import=[onnx.helper.make_opsetid("made.up", 1)])


def attributes_of(content):
    (node,) = parse_model(memoryview(content)).graph.node
    return {attribute.name: attribute for attribute in node.attribute}


@pytest.mark.parametrize("count", COUNTS)
def test_as_protobuf_reads_them(count):
    rng = np.random.default_rng(count)
    ints = rng.choice(LARGE, count).tolist()
    floats = rng.standard_normal(count).astype(np.float32).tolist()
    # Strings with the byte of their own tag in them, of lengths around 128, and empty ones.
    texts = [b"J" * int(length) if length % 3 else b"x" * int(length) for length in rng.integers(0, 140, count)]
    kinds = onnx.AttributeProto
    model = model_with(ints=(ints, kinds.INTS), floats=(floats, kinds.FLOATS), strings=(texts, kinds.STRINGS))
    found = attributes_of(model.SerializeToString())
    assert list(found["ints"].ints) == ints
    assert list(found["floats"].floats) == floats
    assert list(found["strings"].strings) == texts


@pytest.mark.parametrize("text", [b"LEAF", b"BRANCH_LEQ", b"", b"J", bytes(200)])
def test_equal_strings(text):
    found = attributes_of(model_with(a=([text] * 5000, onnx.AttributeProto.STRINGS)).SerializeToString())
    assert list(found["a"].strings) == [text] * 5000


def test_runs_that_other_fields_interrupt():
    """Protobuf allows the elements of a field between those of others."""
    first, second = (onnx.AttributeProto(ints=[value] * 5000, floats=[value / 2] * 5000) for value in (3, -4))
    third = onnx.AttributeProto(ints=[9], name="a", type=onnx.AttributeProto.INTS)
    content = b"".join(each.SerializeToString() for each in (first, second, third))
    expected = onnx.AttributeProto.FromString(content)
    pieces = content
    for tag in (0x2A, 0x0A, 0x3A):  # attribute of a node, node of a graph, graph of a model
        pieces = bytes([tag]) + varint(len(pieces)) + pieces
    found = attributes_of(pieces)["a"]
    assert list(found.ints) == list(expected.ints)
    assert list(found.floats) == list(expected.floats)


def varint(number):
    content = bytearray()
    while number >= 0x80:
        content.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*content, number])


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_cut_runs_are_refused(cut):
    for values, kind in (([2**40] * 3000, "INTS"), ([1.5] * 3000, "FLOATS"), ([b"text"] * 3000, "STRINGS")):
        run = onnx.AttributeProto()
        getattr(run, kind.lower()).extend(values)
        content = run.SerializeToString()[:-cut]
        for tag in (0x2A, 0x0A, 0x3A):
            content = bytes([tag]) + varint(len(content)) + content
        with pytest.raises(InvalidProtobuf):
            parse_model(memoryview(content))


def test_numbers_without_end_are_refused():
    run = onnx.AttributeProto(ints=[5] * 3000).SerializeToString() + b"\x40" + b"\xff" * 11 + b"\x01"
    for tag in (0x2A, 0x0A, 0x3A):
        run = bytes([tag]) + varint(len(run)) + run
    with pytest.raises(InvalidProtobuf, match="does not end"):
        parse_model(memoryview(run))


def wrapped(content):
    """An attribute's bytes as a model of one node."""
    for tag in (0x2A, 0x0A, 0x3A):  # attribute of a node, node of a graph, graph of a model
        content = bytes([tag]) + varint(len(content)) + content
    return content


def check_attribute(content):
    """As protobuf reads it, or refused by both."""
    try:
        expected = onnx.AttributeProto.FromString(content)
    except DecodeError:
        expected = None
    try:
        (found,) = parse_model(memoryview(wrapped(content))).graph.node[0].attribute
    except InvalidProtobuf:
        return expected is None or "refused by us alone"
    if expected is None:
        return "refused by protobuf alone"
    assert list(found.ints) == list(expected.ints)
    np.testing.assert_array_equal(list(found.floats), list(expected.floats))
    assert list(found.strings) == list(expected.strings)
    assert found.name == expected.name
    return True


MODES = [b"BRANCH_LEQ", b"LEAF", b"BRANCH_LT", b"BRANCH_MEMBER", b"", b"\xff\xfe", b"z" * 127]


@pytest.mark.parametrize("count", [4096, 4128, 9000, 300_000])
@pytest.mark.parametrize("different", [1, 2, 7])
def test_few_different_strings(count, different):
    texts = [MODES[index] for index in np.random.default_rng(count).integers(0, different, count)]
    texts[-1], texts[: different - 1] = b"AT_THE_END", MODES[1:different]
    (found,) = attributes_of(model_with(a=(texts, onnx.AttributeProto.STRINGS)).SerializeToString()).values()
    assert found.strings[-1] == b"AT_THE_END"
    assert len(found.strings) == count
    assert list(found.strings) == texts


@pytest.mark.parametrize("place", [40, 5000, 9999])
@pytest.mark.parametrize("text", [b"J", b"xJy", b"J" * 90, b"LJ\x02J", b"w" * 128, b"w" * 5000, b"\0", b"LEAF\0"])
def test_one_other_string_among_few(place, text):
    texts = [MODES[index % 2] for index in range(10_000)]
    texts[place] = text
    assert check_attribute(onnx.AttributeProto(strings=texts, name="n").SerializeToString()) is True


def test_more_and_more_different_strings():
    texts = [b"LEAF"] * 6000 + [b"%d" % index for index in range(6000)]
    for given in (texts, texts[::-1], [b"%d" % (index % 40) for index in range(9000)]):
        assert check_attribute(onnx.AttributeProto(strings=given).SerializeToString()) is True


@pytest.mark.parametrize("values", [[0, 127, 3], [128, 2**14, 2**21 - 1], [-1, 0], [2**62, -(2**63), 5], [2**35]])
def test_numbers_of_any_length(values):
    for count in (4096, 70_001):
        ints = (values * count)[:count]
        assert check_attribute(onnx.AttributeProto(ints=ints).SerializeToString()) is True
        ints[count // 2 : count // 2] = [2**40]
        assert check_attribute(onnx.AttributeProto(ints=ints).SerializeToString()) is True


@pytest.mark.parametrize("odd", [b"\x85\x80\x00", b"\x80\x00", b"\xff" * 9 + b"\x7f", b"\x83" + b"\x80" * 8 + b"\x00"])
def test_numbers_longer_than_they_must_be(odd):
    run = onnx.AttributeProto(ints=[5, 300] * 3000).SerializeToString()
    assert check_attribute(run + b"\x40" + odd + run) is True
    assert check_attribute(run + b"\xc0\x00" + odd + run) is True  # so is its tag


def packed(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


@pytest.mark.parametrize("count", [3, 4096, 6000])
def test_packed_lists_and_pieces(count):
    ints = b"".join(map(varint, (value & (2**64 - 1) for value in (LARGE * count)[:count])))
    floats = np.random.default_rng(count).standard_normal(count).astype("<f4").tobytes()
    one_by_one = onnx.AttributeProto(ints=[7, 2**50] * count, floats=[1.5] * count).SerializeToString()
    pieces = [packed(8, ints), packed(7, floats), one_by_one]
    for order in itertools.permutations(pieces):
        assert check_attribute(b"".join(order)) is True
        assert check_attribute(b"".join(order * 2)) is True


def test_damaged_runs():
    """Each byte may be another one, at the borders of runs and inside."""
    rng = random.Random(5)
    whole = onnx.AttributeProto(
        name="n", ints=[3, 200] * 2100, floats=[0.25] * 4200, strings=[b"BRANCH_LEQ", b"LEAF"] * 2400
    ).SerializeToString()
    outcomes = []
    for _ in range(250):
        content = bytearray(whole)
        for _ in range(rng.randrange(1, 3)):
            content[rng.randrange(len(content))] = rng.randrange(256)
        if rng.random() < 0.3:
            del content[rng.randrange(len(content)) :]
        outcomes.append(check_attribute(bytes(content)))
    # Fields that are not read are not looked into.
    assert sum(each is not True for each in outcomes) < 15
    assert "refused by us alone" not in outcomes
