"""Models of large random weights, written without ever being in memory as a whole. All need the onnx package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from models import FLOAT_BYTES, as_model, value
from onnx import GraphProto, ModelProto, TensorProto, helper

__all__ = ["write_external", "write_inline"]

GRAPH_FIELD, INITIALIZER_FIELD, RAW_DATA_FIELD = (
    ModelProto.DESCRIPTOR.fields_by_name["graph"].number,
    GraphProto.DESCRIPTOR.fields_by_name["initializer"].number,
    TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number,
)
ALIGNMENT = 64
LENGTH_BYTES = 5
"""Lengths are written in this many bytes, so that no length depends on another."""


def write_external(path: Path, nbytes: int, count: int) -> Path:
    """A chain of ``count`` MatMuls whose weights, about ``nbytes`` bytes together, lie in one file beside the model."""
    size = _size(nbytes, count)
    data = path.with_suffix(".data")
    with data.open("wb") as file:
        for weight in _weights(size, count):
            weight.tofile(file)
    model = _chain(size, count)
    for index in range(count):
        tensor = _described(index, size)
        tensor.data_location = TensorProto.EXTERNAL
        length = size * size * FLOAT_BYTES
        for key, text in (("location", data.name), ("offset", str(index * length)), ("length", str(length))):
            tensor.external_data.add(key=key, value=text)
        model.graph.initializer.append(tensor)
    path.write_bytes(model.SerializeToString())
    return path


def write_inline(path: Path, nbytes: int, count: int, *, misalignment: int) -> Path:
    """The same chain with the weights in the model's file, each ``misalignment`` bytes behind a multiple of 64."""
    size = _size(nbytes, count)
    model = _chain(size, count)
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    payload = size * size * FLOAT_BYTES
    heads, at = [], len(model.SerializeToString()) + 1 + LENGTH_BYTES + len(graph)
    for index in range(count):
        head = _head(_described(index, size), payload, at, misalignment)
        heads.append(head)
        at += len(head) + payload
    with path.open("wb") as file:
        file.write(model.SerializeToString())
        file.write(_field(GRAPH_FIELD, len(graph) + sum(len(head) + payload for head in heads)))
        file.write(graph)
        _write_tensors(file, heads, size)
    return path


def _write_tensors(file: BinaryIO, heads: list[bytes], size: int) -> None:
    for head, weight in zip(heads, _weights(size, len(heads)), strict=True):
        file.write(head)
        file.write(memoryview(weight).cast("B"))


def _head(tensor: TensorProto, payload: int, at: int, misalignment: int) -> bytes:
    """All of an initializer before its payload; a description as long as alignment wants."""
    fields = 2 * (1 + LENGTH_BYTES)
    tensor.doc_string = "-"
    padding = (misalignment - at - fields - tensor.ByteSize()) % ALIGNMENT
    tensor.doc_string += "-" * padding
    described = tensor.SerializeToString() + _field(RAW_DATA_FIELD, payload)
    return _field(INITIALIZER_FIELD, len(described) + payload) + described


def _field(number: int, length: int) -> bytes:
    """Head of a length-delimited field."""
    digits = [(length >> (7 * place) & 0x7F) | (0x80 if place < LENGTH_BYTES - 1 else 0) for place in range(LENGTH_BYTES)]
    return bytes([number << 3 | 2, *digits])


def _size(nbytes: int, count: int) -> int:
    return max(4, round((nbytes / count / FLOAT_BYTES) ** 0.5))


def _weights(size: int, count: int) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield (rng.random((size, size), np.float32) - np.float32(0.5)) / np.float32(size**0.5)


def _described(index: int, size: int) -> TensorProto:
    return TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[size, size])


def _chain(size: int, count: int) -> ModelProto:
    names = ["x", *(f"v{index}" for index in range(1, count)), "y"]
    nodes = [helper.make_node("MatMul", [names[index], f"w{index}"], [names[index + 1]]) for index in range(count)]
    return as_model(helper.make_graph(nodes, "chain", [value("x", ["n", size])], [value("y", ["n", size])]))
