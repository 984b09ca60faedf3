"""MatMulNBits on the processor's matrix unit: codes and parts of activations as bfloat16, or numbers rounded to it."""

import ml_dtypes
import numpy as np
import pytest
from ort_sdk_cpu.gemm.nbits import plan, select
from ort_sdk_cpu.gemm.nbits.launch import NBitsGemm
from ort_sdk_cpu.gemm.nbits.operands import NBitsOperands, nk_operands, sign_bits
from ort_sdk_cpu.gemm.nbits.plan import plan_matmul
from ort_sdk_cpu.gemm.nbits.select import AMX_BF16_ROWS, AMX_BF16X3_ROWS, AMX_BF16X3_ROWS_OF_BYTES
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import has_amx

from ort_sdk.opset.contrib.matmul_nbits import BlockWeight

pytestmark = pytest.mark.skipif(
    not libraries.compiled_kernels().is_usable or not has_amx(), reason="no compiler, or a processor without a matrix unit"
)

TILES = "gemm.nbits.gemm_amx"
NEVER = 1 << 30
"""Fewest rows with which vectors compute all products."""


def _pack(codes, bits):
    """(..., n) codes in bytes along the last axis, lowest bits first."""
    per_byte = 8 // bits
    padded = np.zeros((*codes.shape[:-1], -(-codes.shape[-1] // per_byte) * per_byte), np.uint8)
    padded[..., : codes.shape[-1]] = codes
    return (padded.reshape(*codes.shape[:-1], -1, per_byte) << np.arange(0, 8, bits, dtype=np.uint8)).sum(-1).astype(np.uint8)


class Case:
    """A weight in one of the layouts, and what it stands for."""

    def __init__(self, bits, block, size_k, size_n, *, zeros="packed", by_columns=False, signed=False):
        rng = np.random.default_rng([bits, block, size_k, size_n])
        self.attributes, self.half = BlockWeight("a node", size_k, size_n, bits, block), 1 << (bits - 1)
        shape = (size_n, self.attributes.blocks)
        codes = rng.integers(0, 2 * self.half, (size_n, size_k)).astype(np.uint8)
        scales = rng.uniform(0.01, 0.1, shape).astype(np.float32) * rng.choice(np.float32([-1, 1]), shape)
        offsets = np.full(shape, self.half) if zeros == "none" else rng.integers(0, 2 * self.half, shape)
        if zeros == "float":
            offsets = rng.uniform(0, 2 * self.half, shape).astype(np.float32)
        scale, offset = (np.repeat(values, block, axis=1)[:, :size_k] for values in (scales, offsets.astype(np.float64)))
        self.weight = (codes - offset) * scale
        self.rounded_weight = _rounded(codes * scale.astype(np.float64) - (offset.astype(np.float32) * scale))
        self.operands = (self._columns if by_columns else self._rows)(codes, scales, offsets, zeros, signed)

    def _rows(self, codes, scales, offsets, zeros, _signed):
        weight = self.attributes
        padded = np.random.default_rng(0).integers(0, 2 * self.half, (weight.size_n, weight.blocks * weight.block_size))
        padded[:, : weight.size_k] = codes
        packed = _pack(padded.astype(np.uint8), weight.bits)
        zero_points = {"none": None, "float": offsets}.get(zeros, _pack(offsets.astype(np.uint8), weight.bits))
        return nk_operands(weight, packed, scales, zero_points, None)

    def _columns(self, codes, scales, offsets, zeros, signed):
        weight, turned = self.attributes, self.half if signed else 0
        packed, zero_points = (_pack(values.T.astype(np.uint8) ^ turned, weight.bits) for values in (codes, offsets))
        has_zeros = zeros == "packed"
        return NBitsOperands(
            is_kn=True,
            codes=np.ascontiguousarray(packed),
            codes_stride=packed.shape[1],
            scales=np.ascontiguousarray(scales.T),
            scales_stride=weight.size_n * 4,
            float16_scales=None,
            zero_points=np.ascontiguousarray(zero_points) if has_zeros else None,
            zero_points_kind=int(has_zeros),
            zero_points_stride=packed.shape[1] if has_zeros else 0,
            default_zero_point=self.half,
            sign_flip=sign_bits(weight.bits) if signed else 0,
        )

    def module(self, rows, *, is_exact=True):
        return plan_matmul(self.attributes, self.operands, rows, 1, is_exact=is_exact).module

    def product(self, x, bias=None, *, is_exact=True):
        x, out = np.ascontiguousarray(x), np.full((len(x), self.attributes.size_n), 7, np.float32)
        product = NBitsGemm(self.attributes, Workspace(), is_exact=is_exact).bind(self.operands, len(x))
        product(x, bias, out)
        return out

    def check(self, rows, *, is_exact=True):
        """No sum is further off than a number's last bits, of rounded numbers if not ``is_exact``; returns the errors."""
        x, bias = _activations(rows, self.attributes.size_k), np.linspace(-1, 1, self.attributes.size_n, dtype=np.float32)
        assert self.module(rows, is_exact=is_exact) == TILES
        numbers, weight = (x.astype(np.float64), self.weight) if is_exact else (_rounded(x), self.rounded_weight)
        errors = self.product(x, bias, is_exact=is_exact) - (numbers @ weight.T + bias)
        scale = np.abs(x).astype(np.float64) @ np.abs(self.weight).T + np.abs(bias)
        assert (np.abs(errors) / scale).max() < 2.0**-22
        return errors


def _rounded(values):
    """To bfloat16, as float32 is."""
    return values.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def _of_bytes(x, block):
    """Activations rounded to int8 times a scale for each block."""
    blocks = x.reshape(len(x), -1, block)
    scales = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    return (np.rint(blocks / scales) * scales.astype(np.float64)).reshape(x.shape)


def _fewest(bits, *, by_columns, is_exact=True):
    if not is_exact:
        return AMX_BF16_ROWS[by_columns]
    return AMX_BF16X3_ROWS_OF_BYTES if by_columns and bits == 8 else AMX_BF16X3_ROWS


def _activations(rows, size_k, scale=1.0):
    return (np.random.default_rng(rows).standard_normal((rows, size_k)) * scale).astype(np.float32)


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("zeros", ["none", "packed"])
@pytest.mark.parametrize("block", [32, 64, 128, 256])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weight_by_rows(bits, block, zeros, is_exact):
    fewest = _fewest(bits, by_columns=False, is_exact=is_exact)
    for index, size_k in enumerate((block, 72, 1000, 1100)):
        case = Case(bits, block, size_k, (1, 19, 45, 64)[index], zeros=zeros)
        case.check((fewest, fewest + 7, 49, 130)[index], is_exact=is_exact)


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize(("zeros", "signed"), [("none", True), ("packed", False), ("packed", True)])
@pytest.mark.parametrize("block", [32, 64, 128, 256])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weight_by_columns(bits, block, zeros, signed, is_exact):
    strip, fewest = 64 * 8 // bits, _fewest(bits, by_columns=True, is_exact=is_exact)
    for index, size_k in enumerate((block, 71, 1000, 1100)):
        size_n = (strip, strip + 8, 2 * strip + 8, 3 * strip)[index]
        case = Case(bits, block, size_k, size_n, zeros=zeros, by_columns=True, signed=signed)
        case.check((fewest, 17, 32, 130)[index], is_exact=is_exact)


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rounded_numbers_are_nearer_to_the_truth_than_blocks_of_bytes(bits, by_columns):
    case, x = Case(bits, 32, 1024, 512, by_columns=by_columns), _activations(64, 1024)
    expected = x.astype(np.float64) @ case.weight.T
    errors = case.product(x, is_exact=False) - expected
    errors_of_bytes = _of_bytes(x, 32) @ case.weight.T - expected
    assert np.square(errors).mean() < 0.25 * np.square(errors_of_bytes).mean()
    assert np.abs(errors).max() < np.abs(errors_of_bytes).max()


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_what_the_unit_gains_nothing_with_is_computed_by_vectors(bits, by_columns, is_exact):
    case = Case(bits, 32, 64, 256, by_columns=by_columns)
    fewest = _fewest(bits, by_columns=by_columns, is_exact=is_exact)
    assert case.module(fewest, is_exact=is_exact) == TILES
    assert case.module(fewest - 1, is_exact=is_exact) != TILES
    assert Case(bits, 16, 64, 256, by_columns=by_columns).module(fewest, is_exact=is_exact) != TILES


def test_zero_points_that_need_not_be_whole_are_not_for_the_unit():
    assert Case(4, 32, 64, 128, zeros="float").module(128) != TILES


@pytest.mark.parametrize("rows", [None, 40])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("block", [32, 128])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_sums_round_off_no_more_than_those_of_vectors(bits, block, by_columns, rows, monkeypatch):
    case, rows = Case(bits, block, 4096, 512, by_columns=by_columns), rows or _fewest(bits, by_columns=by_columns)
    errors = case.check(rows)
    for name in ("AMX_BF16X3_ROWS", "AMX_BF16X3_ROWS_OF_BYTES"):
        monkeypatch.setattr(select, name, NEVER)
    x, bias = _activations(rows, 4096), np.linspace(-1, 1, 512, dtype=np.float32)
    expected = x.astype(np.float64) @ case.weight.T + bias
    assert case.module(rows) != TILES
    assert np.square(errors).mean() <= np.square(case.product(x, bias) - expected).mean()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("by_columns", [False, True])
def test_panels_are_made_piece_by_piece(by_columns, threads, monkeypatch):
    monkeypatch.setattr(libraries, "thread_count", lambda: threads)
    for name, value in (("AMX_PANEL_STEPS", 128), ("MC", 16), ("MC_BF16", 48)):
        monkeypatch.setattr(plan, name, value)
    for bits in (2, 4, 8):
        for sums_bytes in (0, 1 << 20):
            monkeypatch.setattr(plan, "AMX_SUMS_BYTES", sums_bytes)
            case = Case(bits, 32, 1000, 1096, by_columns=by_columns)
            case.check(40)
            case.check(56, is_exact=False)


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, np.uint32(0x7F800001).view(np.float32)])
@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_numbers_that_are_not_finite_give_what_sums_of_products_give(bits, by_columns, value, is_exact):
    case, rows = Case(bits, 32, 250, 264, by_columns=by_columns), 20 if is_exact else 40
    x = _activations(rows, 250)
    finite = case.product(x, is_exact=is_exact)
    x[18, 249] = x[3, 40] = value
    with np.errstate(invalid="ignore"):
        expected = x.astype(np.float64) @ case.weight.T if is_exact else _rounded(x) @ case.rounded_weight.T
    found = case.product(x, is_exact=is_exact)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    others = [row for row in range(rows) if row not in {3, 18}]
    np.testing.assert_array_equal(found[others], finite[others])


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_largest_numbers_stay_finite_where_their_products_are(bits, by_columns):
    case = Case(bits, 256, 256, 264, by_columns=by_columns)
    x = np.full((20, 256), np.finfo(np.float32).max / 256 / (1 << bits), np.float32)
    x[:8, 1:] = 0
    x[:8, 0] = np.finfo(np.float32).max
    case.weight /= 1 << (bits + 8)
    case.operands.scales[...] /= 1 << (bits + 8)
    np.testing.assert_allclose(case.product(x), x.astype(np.float64) @ case.weight.T, rtol=1e-4)


@pytest.mark.parametrize("exponent", [-60, 60])
def test_numbers_of_any_size_keep_their_24_bits(exponent):
    case = Case(4, 32, 64, 40)
    x = _activations(20, 64, 2.0**exponent)
    x[:, 1:] = 0  # one product each: nothing is rounded but the product itself
    np.testing.assert_allclose(case.product(x), x[:, :1].astype(np.float64) @ case.weight[:, :1].T, rtol=2.0**-22)
