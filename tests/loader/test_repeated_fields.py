"""Repeated numbers and strings of attributes, which are not packed: as protobuf reads them, in runs of any length."""

import numpy as np
import onnx
import pytest

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
