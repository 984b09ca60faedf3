"""com.microsoft operators over an array library that knows the array API standard only, against the same over NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from ort_sdk.api import TensorElementType
from tests.opset.library_kernel import run_kernel
from tests.opset.one_node import assert_same

RNG = np.random.default_rng(37)
FLOAT, UINT8, INT32 = TensorElementType.FLOAT, TensorElementType.UINT8, TensorElementType.INT32


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def numbers(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


SCALE, ZERO = np.array(0.1, np.float32), np.array(120, np.uint8)
QUANTIZED = [numbers(2, 3, 4), SCALE, ZERO]
CACHE = [floats(1, 1, 3, 4), floats(1, 1, 3, 4), np.array([4], np.int32), np.array(5, np.int32), floats(9, 2), floats(9, 2)]
PROMPT = [None, None, np.array([1], np.int32), np.array(2, np.int32)]
GROUPS = {"num_heads": 2, "kv_num_heads": 1}
TOKENS, ENDS = np.array([[1, 0]], np.int32), np.array([2], np.int32)
BLOCKS = {"K": 32, "N": 5, "bits": 4, "block_size": 16}

CASES = [
    ("Gelu", [floats(3, 4)], [FLOAT], {}),
    ("BiasSplitGelu", [floats(2, 3, 4), floats(4)], [FLOAT], {}),
    ("SkipLayerNormalization", [floats(2, 3, 4), floats(2, 3, 4), floats(4), floats(4)], [FLOAT], {}),
    ("GroupNorm", [floats(2, 3, 3, 4), floats(4), floats(4)], [FLOAT], {"groups": 2, "activation": 1}),
    (
        "EmbedLayerNormalization",
        [np.array([[1, 0]], np.int32), None, floats(3, 4), floats(2, 4), None, floats(4), floats(4)],
        [FLOAT],
        {},
    ),
    ("FusedMatMul", [floats(2, 4, 3), floats(4, 5)], [FLOAT], {"transA": 1, "alpha": 2.0}),
    ("FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(3)], [FLOAT], {"activation": "Relu"}),
    (
        "Attention",
        [floats(1, 3, 4), floats(4, 12), floats(12), np.array([2], np.int32)],
        [FLOAT],
        {"num_heads": 2, "unidirectional": 1},
    ),
    ("MultiHeadAttention", [floats(1, 3, 4), floats(1, 3, 4), floats(1, 3, 4)], [FLOAT, FLOAT, FLOAT], {"num_heads": 2}),
    ("GroupQueryAttention", [floats(1, 2, 8), floats(1, 2, 4), floats(1, 2, 4), *PROMPT], [FLOAT] * 3, GROUPS),
    (
        "GroupQueryAttention",
        [floats(1, 2, 8), floats(1, 2, 4), floats(1, 2, 4), *CACHE],
        [FLOAT, FLOAT, FLOAT],
        {**GROUPS, "do_rotary": 1, "local_window_size": 2},
    ),
    ("RotaryEmbedding", [floats(1, 3, 8), np.array([[2, 0, 1]]), floats(4, 2), floats(4, 2)], [FLOAT], {"interleaved": 1}),
    ("MatMulNBits", [floats(3, 32), numbers(5, 2, 8), floats(5, 2), numbers(5, 1)], [FLOAT], BLOCKS),
    ("MatMulBnb4", [floats(3, 16), numbers(16), floats(2)], [FLOAT], {"K": 16, "N": 2, "block_size": 16, "quant_type": 1}),
    ("GatherBlockQuantized", [numbers(4, 16), np.array([1, 3]), floats(4, 2)], [FLOAT], {"block_size": 16}),
    ("MoE", [floats(3, 4), floats(3, 2), floats(2, 6, 4), None, floats(2, 4, 6)], [FLOAT], {"k": 2}),
    ("QLinearAdd", [*QUANTIZED, *QUANTIZED, SCALE, ZERO], [UINT8], {}),
    ("QLinearSoftmax", [*QUANTIZED, SCALE, ZERO], [UINT8], {"opset": 12, "axis": 1}),
    ("QLinearConcat", [SCALE, ZERO, *QUANTIZED, *QUANTIZED], [UINT8], {"axis": 1}),
    ("QLinearAveragePool", [numbers(1, 2, 4, 4), SCALE, ZERO, SCALE, ZERO], [UINT8], {"kernel_shape": [2, 2]}),
    (
        "QLinearConv",
        [numbers(1, 4, 4, 2), SCALE, ZERO, numbers(3, 2, 3, 3), SCALE, ZERO, SCALE, ZERO],
        [UINT8],
        {"channels_last": 1},
    ),
    ("DynamicQuantizeMatMul", [floats(3, 4), numbers(4, 5), SCALE, ZERO], [FLOAT], {}),
    ("MulInteger", [numbers(3), ZERO, numbers(3), ZERO], [INT32], {}),
    ("CropAndResize", [floats(1, 2, 4, 4), floats(3, 4), np.zeros(3, np.int32), np.array([2, 3], np.int32)], [FLOAT], {}),
    ("WordConvEmbedding", [np.array([[1, 2, 0]], np.int32), floats(3, 1, 2, 4), floats(3), floats(4, 4)], [FLOAT], {}),
    ("Rfft", [floats(3, 8)], [FLOAT], {}),
    ("UnfoldTensor", [floats(6, 3)], [FLOAT], {"dim": 0, "size": 2}),
    ("IsAllFinite", [floats(3), floats(2)], [TensorElementType.BOOL], {}),
]


@pytest.mark.parametrize(("op_type", "inputs", "outputs", "attributes"), CASES, ids=[case[0] for case in CASES])
def test_same_as_over_numpy(op_type, inputs, outputs, attributes):
    arguments = {"opset": 1, "domain": "com.microsoft", "attributes": attributes}
    expected = run_kernel(op_type, inputs, outputs, library=np, **arguments)
    for got, want in zip(run_kernel(op_type, inputs, outputs, **arguments), expected, strict=True):
        assert_same(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize(("op_type", "inputs", "outputs", "attributes"), CASES, ids=[case[0] for case in CASES])
def test_inputs_are_neither_written_nor_given_out(op_type, inputs, outputs, attributes):
    inputs = [None if value is None else value.copy() for value in inputs]
    for value in inputs:
        if value is not None:
            value.flags.writeable = False
    results = run_kernel(op_type, inputs, outputs, opset=1, domain="com.microsoft", attributes=attributes, library=np)
    assert not any(np.shares_memory(got, value) for got in results for value in inputs if value is not None)
