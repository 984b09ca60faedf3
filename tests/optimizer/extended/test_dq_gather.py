"""DequantizeLinear before Gather: the same bits from GatherBlockQuantized, and nothing unpacked but what is gathered."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import ort_sdk
from tests.optimizer.extended.fused_graph import FLOAT, node, op_types, open_session, optimized
from tests.optimizer.extended.quantized_models import INT64, dequantize, model_of, quantized

INDICES = np.array([[1, 0, 3], [2, 2, -1]])
FUSED = ["GatherBlockQuantized"]
LEFT = ["DequantizeLinear", "Gather"]

NIBBLES, BYTES = ("int4", "uint4"), ("int8", "uint8")
BLOCKS = {
    "blocks": ((20, 64), 1, 32, 0),
    "odd rows": ((20, 63), 1, 16, 0),
    "per row": ((20, 63), 0, 0, 0),
    "per tensor": ((20, 64), None, 0, 0),
    "three axes": ((5, 8, 32), 2, 16, 0),
}
"""What tables of all types can be: shape, axis, block size, axis of Gather."""
NIBBLE_BLOCKS = {
    "blocks along the gathered axis": ((33, 64), 0, 16, 0),
    "last axis": ((20, 64), 1, 16, 1),
    "last axis per column": ((20, 64), 1, 0, 1),
    "middle axis per tensor": ((5, 8, 32), None, 0, 1),
    "odd last axis": ((33, 7, 5), 0, 16, 2),
}
CASES = [(name, layout) for name in NIBBLES + BYTES for layout in BLOCKS.values()]
CASES += [(name, layout) for name in NIBBLES for layout in NIBBLE_BLOCKS.values()]


def gather_of(constants, axis, block_size, gather_axis, element_type=FLOAT):
    nodes = [dequantize(constants, axis, block_size), node("Gather", ["d", "i"], ["y"], axis=gather_axis)]
    return model_of(nodes, [("i", INT64, [2, 3])], constants, [("y", element_type, None)])


def gathered(session):
    """The result of two runs, as steps and as a program."""
    first, second = (session.run(None, {"i": INDICES})[0] for _ in range(2))
    assert first.tobytes() == second.tobytes()
    return first


def assert_same_bits(model, config=None):
    result = gathered(open_session(model, 2, config=config))
    wanted = gathered(open_session(model, 0))
    assert result.dtype == wanted.dtype
    assert result.shape == wanted.shape
    assert result.tobytes() == wanted.tobytes()
    return result


@pytest.mark.parametrize("zero_points", [False, True])
@pytest.mark.parametrize(("name", "layout"), CASES, ids=str)
def test_gather(name, layout, zero_points, tmp_path):
    shape, axis, block_size, gather_axis = layout
    model = gather_of(quantized(name, shape, axis, block_size, zero_points), axis, block_size, gather_axis)
    assert op_types(model) == FUSED
    result = assert_same_bits(model)
    assert_same_bits(model, {"session.disable_prepacking": "1"})
    options = ort_sdk.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    ort_sdk.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    saved = onnxruntime.InferenceSession(tmp_path / "saved.onnx", providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(saved.run(None, {"i": INDICES})[0], result)


@pytest.mark.parametrize(("dtype", "kind"), [(np.float16, TensorProto.FLOAT16), (ml_dtypes.bfloat16, TensorProto.BFLOAT16)])
def test_gather_of_float16(dtype, kind):
    model = gather_of(quantized("int4", (20, 64), 1, 32, True, dtype), 1, 32, 0, kind)
    assert op_types(model) == FUSED
    assert_same_bits(model)


@pytest.mark.parametrize("name", ["int4", "uint4", "uint8"])
def test_blocks_are_read_in_place(name):
    graph = optimized(gather_of(quantized(name, (20, 64), 1, 32, True), 1, 32, 0))
    assert graph.nodes[0].inputs == ["w", "i", "s", "z"]


@pytest.mark.parametrize(
    ("name", "shape", "axis", "block_size", "gather_axis"),
    [
        ("int8", (20, 64), 1, 16, 1),
        ("uint8", (33, 64), 0, 16, 0),
        ("int8", (20, 64), 1, 0, 0),
        ("int4", (20, 64), 1, 8, 0),
        ("int4", (20, 64), 1, 48, 0),
        ("int4", (20, 8, 64), 1, 0, 0),
        ("int4", (20,), None, 0, 0),
        ("uint2", (20, 64), 1, 16, 0),
    ],
)
def test_tables_the_operator_does_not_take_are_left(name, shape, axis, block_size, gather_axis):
    model = gather_of(quantized(name, shape, axis, block_size, False), axis, block_size, gather_axis)
    assert op_types(model) == LEFT
    assert_same_bits(model)


def test_dequantized_indices_are_no_table():
    constants = quantized("int8", (20, 64), 1, 32, False)
    nodes = [dequantize(constants, 1, 32), node("Gather", ["x", "i"], ["g"]), node("MatMul", ["g", "d"], ["y"])]
    model = model_of(nodes, [("x", FLOAT, [9, 20]), ("i", INT64, [2, 3])], constants)
    assert "GatherBlockQuantized" not in op_types(model)


def test_other_readers_keep_the_dequantized_table():
    constants = quantized("int4", (20, 64), 1, 32, False)
    nodes = [dequantize(constants, 1, 32), node("Gather", ["d", "i"], ["y"]), node("Neg", ["d"], ["n"])]
    model = model_of(nodes, [("i", INT64, [2, 3])], constants, [("y", FLOAT, None), ("n", FLOAT, None)])
    assert op_types(model) == ["DequantizeLinear", "GatherBlockQuantized", "Neg"]
    assert_same_bits(model)


def test_several_gathers_of_one_table():
    constants = quantized("int8", (20, 64), 0, 0, True)
    nodes = [
        dequantize(constants, 0, 0),
        node("Gather", ["d", "i"], ["a"]),
        node("Gather", ["d", "i"], ["b"], axis=0),
        node("Add", ["a", "b"], ["y"]),
    ]
    model = model_of(nodes, [("i", INT64, [2, 3])], constants)
    graph = optimized(model)
    assert len({tuple(found.inputs[2:]) for found in graph.nodes if found.op_type == "GatherBlockQuantized"}) == 1
    assert_same_bits(model)


@pytest.mark.parametrize(("config", "disabled"), [({"session.disable_quant_qdq": "1"}, []), ({}, [FUSED[0]])])
def test_it_can_be_disabled(config, disabled):
    model = gather_of(quantized("int4", (20, 64), 1, 32, False), 1, 32, 0)
    names = [f"DQGatherTo{name}" for name in disabled]
    assert "GatherBlockQuantized" not in op_types(model, names, config)


@pytest.mark.parametrize("name", NIBBLES + BYTES)
def test_the_table_is_never_unpacked(name, monkeypatch):
    """Nobody asks a session's table of 4-bit, or raised, elements for all of them."""
    model = gather_of(quantized(name, (2000, 64), 1, 32, True), 1, 32, 0)
    session = open_session(model, 2)
    gathered(session)
    constants = session._state.plan.constants.arrays().values()
    table_bytes = 2000 * 64 * int(name[-1]) // 8
    assert all(array.nbytes < table_bytes or not array.flags.owndata for array in constants)
