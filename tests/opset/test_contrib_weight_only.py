"""MatMulNBits, MatMulBnb4 and GatherBlockQuantized against onnxruntime and float64 formulas."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ort_sdk.api import InvalidArgument, InvalidGraph, KernelInfo, NodeArg
from ort_sdk.opset.contrib.matmul_nbits import matmul_nbits
from ort_sdk.opset.definition import as_namespace
from tests.opset.one_node import compare, make_model, run_sdk

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(5)


def bytes_of(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize(
    ("bits", "zero_points"),
    [(bits, zeros) for bits in (2, 4, 8) for zeros in ("none", "packed", "float") if (bits, zeros) != (8, "float")],
)
@pytest.mark.parametrize("with_bias", [False, True])
def test_matmul_nbits(bits, zero_points, with_bias):
    size_k, size_n, block = 72, 19, 32
    blocks = 3
    a = RNG.normal(size=(2, 3, size_k)).astype(np.float32)
    b = bytes_of(size_n, blocks, block * bits // 8)
    scales = RNG.uniform(0.01, 0.1, (size_n, blocks)).astype(np.float32)
    zeros = {
        "none": None,
        "packed": bytes_of(size_n, -(-blocks * bits // 8)),
        "float": RNG.uniform(0, 2**bits, (size_n, blocks)).astype(np.float32),
    }[zero_points]
    bias = RNG.normal(size=size_n).astype(np.float32) if with_bias else None
    attributes = {"K": size_k, "N": size_n, "bits": bits, "block_size": block, "accuracy_level": 1}
    inputs = [a, b, scales, zeros, None, bias]
    compare("MatMulNBits", inputs, domain=MICROSOFT, attributes=attributes, constants=(1, 2, 3), rtol=1e-4, atol=1e-2)


def test_matmul_nbits_takes_blocks_from_g_idx():
    size_k, size_n, block = 64, 5, 16
    a = RNG.normal(size=(3, size_k)).astype(np.float32)
    b = bytes_of(size_n, 4, 8)
    scales = RNG.uniform(0.01, 0.1, size_n * 4).astype(np.float32)
    g_idx = RNG.integers(0, 4, size_k).astype(np.int32)
    attributes = {"K": size_k, "N": size_n, "bits": 4, "block_size": block}
    model = make_model("MatMulNBits", [a, b, scales, None, g_idx], domain=MICROSOFT, attributes=attributes, output_types=[1])
    (got,) = run_sdk(*model)
    quantized = np.stack([b & 15, b >> 4], axis=-1).reshape(size_n, size_k).astype(np.float64)
    weight = (quantized - 8) * scales.reshape(size_n, 4)[:, g_idx]
    np.testing.assert_allclose(got, a @ weight.T, rtol=1e-5, atol=1e-5)


def test_matmul_nbits_of_half_precision():
    a = RNG.normal(size=(3, 32)).astype(np.float16)
    inputs = [a, bytes_of(5, 1, 16), RNG.uniform(0.01, 0.1, (5, 1)).astype(np.float16)]
    attributes = {"K": 32, "N": 5, "bits": 4, "block_size": 32}
    compare("MatMulNBits", inputs, domain=MICROSOFT, attributes=attributes, constants=(1, 2), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("quant_type", [0, 1])
def test_matmul_bnb4(quant_type):
    size_k, size_n, block = 32, 6, 16
    a = RNG.normal(size=(4, size_k)).astype(np.float32)
    inputs = [a, bytes_of(size_k * size_n // 2), RNG.uniform(0.1, 1, size_k * size_n // block).astype(np.float32)]
    attributes = {"K": size_k, "N": size_n, "quant_type": quant_type, "block_size": block}
    compare("MatMulBnb4", inputs, domain=MICROSOFT, attributes=attributes, constants=(1, 2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("with_zero_points", [False, True])
def test_gather_of_packed_rows(bits, with_zero_points):
    rows, width, block = 7, 64, 32
    zeros = bytes_of(rows, -(-2 * bits // 8)) if with_zero_points else None
    inputs = [
        bytes_of(rows, width * bits // 8),
        np.array([[1, -2], [0, 6]], np.int64),
        RNG.uniform(0.1, 1, (rows, 2)).astype(np.float32),
        zeros,
    ]
    attributes = {"bits": bits, "block_size": block, "quantize_axis": 1, "gather_axis": 0}
    compare("GatherBlockQuantized", inputs, domain=MICROSOFT, attributes=attributes, constants=(0, 2, 3))


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
@pytest.mark.parametrize(("gather_axis", "quantize_axis"), [(0, 1), (0, 2), (1, 0), (2, 1), (1, 1)])
def test_gather_of_four_bit_tensors(dtype, gather_axis, quantize_axis):
    shape = [16, 32, 16]
    scale_shape = list(shape)
    scale_shape[quantize_axis] //= 16
    low = 0 if dtype is ml_dtypes.uint4 else -8
    inputs = [
        RNG.integers(low, low + 16, shape).astype(dtype),
        np.array([3, 0, -1], np.int32),
        RNG.uniform(0.1, 1, scale_shape).astype(np.float32),
        RNG.integers(low, low + 16, scale_shape).astype(dtype),
    ]
    attributes = {"block_size": 16, "quantize_axis": quantize_axis, "gather_axis": gather_axis}
    compare("GatherBlockQuantized", inputs, domain=MICROSOFT, attributes=attributes, constants=(0, 2, 3))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn])
@pytest.mark.parametrize(("block_size", "scale_shape"), [(0, (6, 1)), (0, (1, 1)), (16, (6, 2))])
def test_gather_of_narrow_floats(dtype, block_size, scale_shape):
    data, indices = RNG.uniform(-4, 4, (6, 32)).astype(dtype), np.array([[0, 5], [-1, 2]], np.int64)
    scales = RNG.uniform(0.1, 1, scale_shape).astype(np.float32)
    attributes = {"block_size": block_size}
    arguments = {"domain": MICROSOFT, "attributes": attributes, "output_types": [1], "constants": (0, 2)}
    (got,) = run_sdk(*make_model("GatherBlockQuantized", [data, indices, scales], **arguments))
    real = data.astype(np.float32) * np.repeat(np.broadcast_to(scales, (6, scale_shape[1])), 32 // scale_shape[1], axis=1)
    np.testing.assert_allclose(got, real[indices], rtol=1e-6)


def test_gather_outside_the_table_gives_zeros():
    inputs = [bytes_of(4, 16), np.array([9, 1, -5], np.int64), np.ones((4, 1), np.float32)]
    attributes = {"bits": 8, "block_size": 16}
    model = make_model("GatherBlockQuantized", inputs, domain=MICROSOFT, attributes=attributes, output_types=[1])
    (got,) = run_sdk(*model)
    assert not got[[0, 2]].any()
    np.testing.assert_array_equal(got[1], inputs[0][1].astype(np.float32) - 128)


def nbits_kernel(**attributes):
    arguments = tuple(NodeArg(f"x{index}", "tensor(float)") for index in range(3))
    info = KernelInfo("MatMulNBits", 1, MICROSOFT, attributes={"K": 32, "N": 4, "block_size": 16, **attributes}, inputs=arguments)
    return matmul_nbits(info, as_namespace(np))


@pytest.mark.parametrize("attributes", [{"bits": 3}, {"block_size": 8}, {"block_size": 48}])
def test_matmul_nbits_refuses_other_layouts(attributes):
    with pytest.raises(InvalidGraph, match="must be one of"):
        nbits_kernel(**attributes)


@pytest.mark.parametrize(
    ("a", "b", "scales", "zero_points"),
    [
        ((2, 31), (4, 2, 8), (4, 2), None),
        ((2, 32), (4, 2, 7), (4, 2), None),
        ((2, 32), (4, 2, 8), (4, 3), None),
        ((2, 32), (4, 2, 8), (4, 2), (4, 2)),
    ],
)
def test_matmul_nbits_refuses_shapes_that_do_not_fit(a, b, scales, zero_points):
    zeros = None if zero_points is None else np.zeros(zero_points, np.uint8)
    with pytest.raises(InvalidArgument, match="must be"):
        nbits_kernel()(np.zeros(a, np.float32), np.zeros(b, np.uint8), np.ones(scales, np.float32), zeros)


def test_matmul_nbits_refuses_blocks_that_are_not_there():
    inputs = [np.ones((1, 32), np.float32), bytes_of(4, 2, 8), np.ones((4, 2), np.float32), None, np.full(32, 2, np.int32)]
    attributes = {"K": 32, "N": 4, "block_size": 16}
    model = make_model("MatMulNBits", inputs, domain=MICROSOFT, attributes=attributes, constants=(4,), output_types=[1])
    with pytest.raises(InvalidArgument, match="g_idx reaches"):
        run_sdk(*model)
