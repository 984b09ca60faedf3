"""Malformed and hostile bytes: always one of our errors, never a hang."""

from __future__ import annotations

import random
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ort_sdk.api import InvalidProtobuf, OrtSdkError
from ort_sdk.formats.onnx.reader.messages import parse_model
from ort_sdk.loader import load_model


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        b"\x80" * 11,
        b"\xff" * 9 + b"\x01",
        field(7, bytes(200)),
        varint(7 << 3 | 2),
        varint(7 << 3 | 2) + b"\x80",
        varint(7 << 3 | 2) + varint(2**31),
        varint(7 << 3 | 2) + varint(2**63) + bytes(200),
        varint(7 << 3 | 2) + varint(201) + bytes(200),
        b"\x09\x00\x00",
        b"\x0d\x00",
        b"\x0b" * 200,
        b"\x0c",
        b"\x0e\x00",
        b"\x0f\x00",
        field(7, field(5, field(9, bytes(200))[:-1])),
        field(7, field(5, field(9, bytes(200)) + b"\x4a")),
    ],
)
def test_malformed(data) -> None:
    with pytest.raises(InvalidProtobuf):
        parse_model(memoryview(data))
    with pytest.raises(InvalidProtobuf):
        load_model(data)


def nested_graphs(levels: int) -> bytes:
    content = field(1, bytes(0)) + field(2, b"x" * 200)
    for _ in range(levels):
        # graph in attribute in node in graph
        content = field(1, field(5, field(6, content)))
    return field(7, content)


@pytest.mark.parametrize("levels", [40, 1000, 5000])
def test_deep_nesting(levels) -> None:
    with pytest.raises(InvalidProtobuf):
        load_model(b"\x08\x08" + nested_graphs(levels))


def test_deep_types(add_model) -> None:
    model = add_model([numpy_helper.from_array(np.zeros(4, np.float32), "w")])
    data = b""
    for _ in range(3000):
        data = field(4, field(1, data))
    with pytest.raises(InvalidProtobuf):
        load_model(model.SerializeToString() + field(7, field(11, field(1, b"z") + field(2, data))))


def test_fields_may_come_in_pieces(add_model) -> None:
    """Protobuf merges repeated occurrences of a message; ranges must survive that."""
    values = np.arange(100, dtype=np.float32)
    model = add_model([])
    tensor = numpy_helper.from_array(values, "w").SerializeToString()
    merged = load_model(model.SerializeToString() + field(7, field(5, tensor)))
    np.testing.assert_array_equal(merged.graph.initializers["w"].numpy(), values)


def test_the_last_raw_data_counts_or_is_refused(add_model) -> None:
    head = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[100]).SerializeToString()
    first, second = (np.full(100, value, np.float32) for value in (1, 2))
    both = head + field(9, first.tobytes()) + field(9, second.tobytes())
    model = add_model([]).SerializeToString()
    np.testing.assert_array_equal(load_model(model + field(7, field(5, both))).graph.initializers["w"].numpy(), second)
    mixed = head + field(9, first.tobytes()) + field(9, b"\0\0\0\0")
    with pytest.raises(InvalidProtobuf, match="raw_data twice"):
        load_model(model + field(7, field(5, mixed)))


def test_names_that_are_not_utf8(add_model) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], raw_data=bytes(16), doc_string="@@")
    model = add_model(
        [tensor], nodes=[helper.make_node("Add", ["x", "w"], ["@@"]), helper.make_node("Abs", ["@@"], ["y"], name="@@")]
    )
    model.producer_name = model.graph.name = model.doc_string = "@@"
    helper.set_model_props(model, {"@@": "@@"})
    loaded = load_model(model.SerializeToString().replace(b"@@", b"\xff\xfe"))
    escaped = b"\xff\xfe".decode("utf-8", "surrogateescape")
    assert loaded.graph.nodes[1].inputs == [escaped]
    assert loaded.graph.nodes[1].name == loaded.producer_name == loaded.graph.name == loaded.doc_string == escaped
    assert loaded.metadata == {escaped: escaped}


def test_training_info_is_left_out(rich_model) -> None:
    initialization = onnx.TrainingInfoProto()
    initialization.initialization.initializer.append(numpy_helper.from_array(np.zeros(1000, np.float32), "t"))
    rich_model.training_info.append(initialization)
    data = rich_model.SerializeToString()
    assert not hasattr(parse_model(memoryview(data)), "training_info")
    assert load_model(data).graph.nodes


def mutate(data: bytes, generator: random.Random) -> bytes:
    changed = bytearray(data)
    place = generator.randrange(len(changed))
    kind = generator.randrange(5)
    if kind == 0:
        return bytes(changed[:place])
    if kind == 1:
        for _ in range(generator.randrange(1, 6)):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
    elif kind == 2:
        del changed[place : place + generator.randrange(1, 9)]
    elif kind == 3:
        changed[place:place] = generator.randbytes(generator.randrange(1, 9))
    else:
        other = generator.randrange(len(changed))
        changed[place:place] = changed[other : other + generator.randrange(1, 400)]
    return bytes(changed)


def test_mutations_raise_only_our_errors(rich_model) -> None:
    data = rich_model.SerializeToString()
    generator = random.Random(7)
    start = time.monotonic()
    outcomes = set()
    for _ in range(1000):
        try:
            model = load_model(mutate(data, generator))
        except OrtSdkError as error:
            outcomes.add(type(error).__name__)
            continue
        outcomes.add("loaded")
        for graph in model.graph.walk():
            for tensor in graph.initializers.values():
                tensor.numpy()
    assert {"loaded", "InvalidProtobuf", "InvalidGraph"} <= outcomes
    assert time.monotonic() - start < 60


def test_every_truncation_is_noticed_or_harmless(rich_model) -> None:
    data = rich_model.SerializeToString()
    for length in range(1, len(data), 7):
        with pytest.raises(OrtSdkError):
            load_model(data[:length])


def _model_of_small_tensors(count: int) -> bytes:
    weights = [numpy_helper.from_array(np.full(100, index, np.float32), f"w{index}") for index in range(count)]
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, None)] for name in "xy")
    graph = helper.make_graph(nodes, "main", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def _least_seconds_to_load(data: bytes) -> float:
    """Of the thread alone, and the least of some: other programs, and the garbage collector, are in none of them."""
    times = []
    for _ in range(5):
        start = time.thread_time()
        load_model(data)
        times.append(time.thread_time() - start)
    return min(times)


def test_ten_times_as_many_tensors_take_about_ten_times_as_long() -> None:
    few, many = (_model_of_small_tensors(count) for count in (1_000, 10_000))
    assert load_model(many).graph.initializers["w9999"].numpy()[0] == 9999
    assert _least_seconds_to_load(many) < 30 * _least_seconds_to_load(few)  # a hundred times, if each looked at all others
