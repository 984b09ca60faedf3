"""Which algorithm an attention or a recurrent layer gets, and that kernels tell it."""

import numpy as np
import pytest
from ort_sdk_cpu.attention.select import AttentionAlgorithm, AttentionProblem, select_eager, select_fixed, select_over_cache
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set
from ort_sdk_cpu.rnn import select as recurrent
from ort_sdk_cpu.rnn.select import RecurrentAlgorithm, RecurrentProblem

from ort_sdk.api import NodeArg

MICROSOFT = "com.microsoft"
needs_numba = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

DECODE, DECODE_F16, FLASH = AttentionAlgorithm.DECODE, AttentionAlgorithm.DECODE_F16, AttentionAlgorithm.FLASH
APPEND_AND_FLASH, GEMM_BLOCKS = AttentionAlgorithm.APPEND_AND_FLASH, AttentionAlgorithm.GEMM_BLOCKS
OPSET = AttentionAlgorithm.OPSET


def problem(queries=1, keys=0, size=64, **others):
    return AttentionProblem(1, 8, queries, keys, size, others.pop("value_size", size), **others)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (problem(1, appends=True), DECODE),
        (problem(16), DECODE),
        (problem(17), FLASH),
        (problem(17, appends=True), APPEND_AND_FLASH),
        (problem(4, group=4), DECODE),
        (problem(5, group=4, appends=True), APPEND_AND_FLASH),
        (problem(1, size=20), FLASH),
        (problem(1, value_size=24, appends=True), APPEND_AND_FLASH),
        (problem(1, is_float16_cache=True, appends=True), DECODE_F16),
        (problem(40, is_float16_cache=True, appends=True), APPEND_AND_FLASH),
    ],
)
def test_over_a_cache(given, expected):
    assert select_over_cache(given) is expected


@pytest.mark.parametrize(
    ("given", "is_loaded", "expected"),
    [
        (problem(128, 128), False, FLASH),
        (problem(8, 8), False, FLASH),
        (problem(7, 8), False, GEMM_BLOCKS),
        (problem(7, 8), True, FLASH),
        (problem(128, 128, is_compiled=False), True, GEMM_BLOCKS),
        (problem(1, 16), False, DECODE),
        (problem(16, 256), False, DECODE),
        (problem(16, 255), False, FLASH),
        (problem(17, 4096), False, FLASH),
        (problem(1, 1500, size=20), False, FLASH),
    ],
)
def test_of_fixed_shapes(given, is_loaded, expected):
    assert select_fixed(given, lambda: is_loaded) is expected


@pytest.mark.parametrize(
    ("given", "expected"), [(problem(1, 7), OPSET), (problem(1, 8), DECODE), (problem(16, 8), DECODE), (problem(17, 8), FLASH)]
)
def test_of_shapes_that_are_new(given, expected):
    assert select_eager(given) is expected


def layer(steps=4, weights=1 << 12, **others):
    return RecurrentProblem(steps, others.pop("directions", 1), weights, **({"is_compiled": True} | others))


@pytest.mark.parametrize(
    ("given", "is_loaded", "expected"),
    [
        (layer(), False, RecurrentAlgorithm.PANELS),
        (layer(3), False, RecurrentAlgorithm.NUMPY_STEPS),
        (layer(2, directions=2), False, RecurrentAlgorithm.PANELS),
        (layer(3), True, RecurrentAlgorithm.PANELS),
        (layer(1, is_packed=True), False, RecurrentAlgorithm.PANELS),
        (layer(1, is_packed=True, is_int24=True), False, RecurrentAlgorithm.PANELS_INT24),
        (layer(3, has_own_activations=False), False, RecurrentAlgorithm.OPSET),
        (layer(4, has_own_activations=False), False, RecurrentAlgorithm.PANELS),
        (layer(is_compiled=False), True, RecurrentAlgorithm.NUMPY_STEPS),
        (layer(0, is_packed=True), True, RecurrentAlgorithm.OPSET),
    ],
)
def test_of_a_recurrent_layer(given, is_loaded, expected):
    assert recurrent.select(given, lambda: is_loaded) is expected


@pytest.mark.parametrize(
    ("shape", "gates", "expected"),
    [((1, 2048, 512), (4,), True), ((1, 1024, 256), (4,), False), ((1, 2056, 514), (4,), False), ((1, 2048, 2048), (1,), False)],
)
def test_weights_that_are_packed_as_24_bits(shape, gates, expected):
    assert recurrent.is_worth_int24(shape, gates) == (expected and instruction_set() >= InstructionSet.AVX512)


@needs_numba
@pytest.mark.parametrize(("queries", "keys", "expected"), [(1, 300, DECODE), (40, 40, FLASH), (1, 1, OPSET)])
def test_attention_tells_its_algorithm(make_kernel, queries, keys, expected):
    inputs = [np.ones((1, rows, 64), np.float32) for rows in (queries, keys, keys)]
    kernel = make_kernel("MultiHeadAttention", inputs, {"num_heads": 2}, MICROSOFT, None, (), (None,))
    assert kernel.algorithm is None
    kernel.compute(*inputs)
    assert kernel.algorithm == expected


@needs_numba
@pytest.mark.parametrize(("tokens", "expected"), [(1, DECODE), (30, APPEND_AND_FLASH)])
def test_attention_over_a_cache_tells_its_algorithm(make_kernel, tokens, expected):
    heads, size, past = 2, 16, 5
    rows = [np.ones((1, tokens, heads * size), np.float32) for _ in range(3)]
    caches = [np.ones((1, heads, past, size), np.float32) for _ in range(2)]
    lengths = np.array([past + tokens - 1], np.int32), np.array([past + tokens], np.int32)
    attributes = {"num_heads": heads, "kv_num_heads": heads}
    inputs = [*rows, *caches, *lengths]
    kernel = make_kernel("GroupQueryAttention", inputs, attributes, MICROSOFT, None, (), (None, None, None))
    kernel.compute(*inputs)
    assert kernel.algorithm == expected


@needs_numba
def test_recurrent_layers_tell_their_algorithm(make_kernel):
    hidden = 64
    x, w = np.ones((3, 1, 8), np.float32), np.ones((1, 4 * hidden, 8), np.float32) / 8
    r = np.ones((1, 4 * hidden, hidden), np.float32) / hidden
    kernel = make_kernel(
        "LSTM", [x, w, r], {"hidden_size": hidden}, "", None, (), (NodeArg("y", "tensor(float)", (3, 1, 1, hidden)),)
    )
    assert kernel.algorithm is None
    kernel.compute(x, w, r)
    assert kernel.algorithm == RecurrentAlgorithm.PANELS
