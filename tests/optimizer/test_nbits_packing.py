"""Quantised matrices in MatMulNBits' layout, against a plain definition; in pieces, and with little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from ort_sdk.graph import Graph
from ort_sdk.graph.derived_tensor import StreamedTensor
from ort_sdk.graph.tensor import ArrayTensor, pack_elements
from ort_sdk.optimizer.extended.nbits import packing
from ort_sdk.optimizer.extended.nbits.constants import NBitsLayout, zero_of
from ort_sdk.optimizer.extended.nbits.packing import packed_rows, transposed_floats, transposed_rows
from tests.optimizer.extended.quantized_models import integers

TYPES = ["int2", "uint2", "int4", "uint4", "int8", "uint8"]
SHAPES = [(1, 1), (5, 7), (16, 8), (37, 12), (12, 37), (64, 130), (3, 300)]


def row_by_row(codes, bits, row_bytes):
    """Rows of unsigned integers packed lowest bits first, each in so many bytes."""
    rows = np.zeros((len(codes), row_bytes), np.uint8)
    for index in range(codes.shape[1]):
        place = index * bits
        rows[:, place // 8] |= codes[:, index] << np.uint8(place % 8)
    return rows


def unsigned(values, name):
    bits = int(name[-1])
    half = 0 if name.startswith("u") else 1 << (bits - 1)
    return ((values.astype(np.int16) + half) & ((1 << bits) - 1)).astype(np.uint8)


def packed(values):
    tensor = ArrayTensor(values)
    return pack_elements(values, tensor.element_type)


@pytest.fixture(params=[True, False], ids=["small pieces", "large pieces"])
def pieces(request, monkeypatch):
    if request.param:
        for name, value in (("_PIECE_ELEMENTS", 64), ("_SLOW_ELEMENTS", 64), ("_LEAST_COLUMNS", 4)):
            monkeypatch.setattr(packing, name, value)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_columns(name, shape):
    values, bits = integers(name, shape), int(name[-1])
    row_bytes = -(-shape[0] * bits // 8) + 3
    parts = transposed_rows(packed(values), bits, *shape, row_bytes, is_signed=not name.startswith("u"))
    wanted = row_by_row(unsigned(values, name).T, bits, row_bytes)
    np.testing.assert_array_equal(np.concatenate(list(parts)).reshape(wanted.shape), wanted)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_rows(name, shape):
    values, bits = integers(name, shape), int(name[-1])
    row_bytes = -(-shape[1] * bits // 8) + 3
    parts = packed_rows(packed(values), bits, *shape, row_bytes, is_signed=not name.startswith("u"))
    wanted = row_by_row(unsigned(values, name), bits, row_bytes)
    np.testing.assert_array_equal(np.concatenate(list(parts)).reshape(wanted.shape), wanted)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_floats(dtype):
    values = np.arange(7 * 33, dtype=dtype).reshape(7, 33)
    content = np.concatenate(list(transposed_floats(values)))
    np.testing.assert_array_equal(content.view(dtype).reshape(33, 7), values.T)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(3, 5), (8, 9), (1, 1)])
def test_elements_are_packed_as_onnx_packs_them(name, shape):
    values, bits = integers(name, shape), int(name[-1])
    codes = (values.astype(np.int16) & ((1 << bits) - 1)).astype(np.uint8).reshape(1, -1)
    np.testing.assert_array_equal(packed(values), row_by_row(codes, bits, -(-codes.size * bits // 8))[0])


def derived_weight(size_k, size_n):
    weight = ArrayTensor(np.zeros((size_k, size_n), np.uint8))
    scales = ArrayTensor(np.ones((size_k // 32, size_n), np.float32))
    layout = NBitsLayout(size_k, size_n, 32, weight.element_type, scales.element_type, 2, 0)
    graph = Graph()
    name, *_ = layout.add_to(graph, ("w", "s", "z"), weight, scales, zero_of(weight.element_type))
    return graph.initializers[name]


def test_pieces_are_the_elements():
    tensor = derived_weight(64, 300)
    assert isinstance(tensor, StreamedTensor)
    assert sum(len(piece) for piece in tensor.pieces()) == tensor.nbytes == tensor.packed().nbytes
    target = np.empty(tensor.nbytes, np.uint8)
    tensor.write_into(target)
    np.testing.assert_array_equal(target, tensor.numpy().reshape(-1))
    assert not tensor.numpy().flags.writeable


def test_little_memory_beside_the_result():
    tensor = derived_weight(4096, 8192)
    target = np.empty(tensor.nbytes, np.uint8)
    tracemalloc.start()
    tensor.write_into(target)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < tensor.nbytes / 4
    assert peak < 4e6
