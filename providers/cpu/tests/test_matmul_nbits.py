"""MatMulNBits by compiled kernels, against float64 sums over the dequantised weight."""

import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from ort_sdk_cpu.gemm.nbits.scales import has_float16_scales
from ort_sdk_cpu.gemm.nbits.select import AMX_BF16_ROWS, GEMV_ROWS
from ort_sdk_cpu.jit.call_list import CallList
from ort_sdk_cpu.memory.allocator import CpuAllocator
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, has_amx, has_vnni, instruction_set, machine_instruction_set
from ort_sdk_cpu.registry import kernel_registry

from ort_sdk.api import InvalidArgument, KernelInfo, NodeArg, OrtMemoryInfo, TensorElementType
from ort_sdk.api.element_type import element_type_of
from ort_sdk.opset.contrib import matmul_nbits_layout

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba is not installed")

MICROSOFT = "com.microsoft"
EXACT, INT8 = 0, 4
TOLERANCE = 1e-6
"""Largest error over the largest sum of magnitudes."""
SIGNED = {2: TensorElementType.INT2, 4: TensorElementType.INT4, 8: TensorElementType.INT8}
UNSIGNED = {2: TensorElementType.UINT2, 4: TensorElementType.UINT4, 8: TensorElementType.UINT8}


def pack(codes, bits):
    """(..., n) codes in bytes along the last axis, lowest bits first."""
    per_byte = 8 // bits
    padded = np.zeros((*codes.shape[:-1], -(-codes.shape[-1] // per_byte) * per_byte), np.uint8)
    padded[..., : codes.shape[-1]] = codes
    parts = padded.reshape(*codes.shape[:-1], -1, per_byte) << np.arange(0, 8, bits, dtype=np.uint8)
    return parts.sum(-1).astype(np.uint8)


class FileMemory(CpuAllocator):
    """As of a session that keeps packed weights in files."""

    goes_to_file = True

    def __init__(self):
        super().__init__(OrtMemoryInfo())


def quantized(a, group):
    """Activations as int8 times a scale for each group, in float32's roundings, given in float64."""
    rows, size = a.shape
    blocks = np.zeros((rows, -(-size // group) * group), np.float32)
    blocks[:, :size] = a
    blocks = blocks.reshape(rows, -1, group)
    scales = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scales, out=np.zeros_like(scales), where=scales > 0)
    return (np.rint(blocks * inverse) * scales.astype(np.float64)).reshape(rows, -1)[:, :size]


def rounded(scales):
    """Scales as float16, all times the same power of two."""
    factor = 2.0 ** (np.frexp(np.abs(scales).max())[1] - 15)
    return (scales / factor).astype(np.float16).astype(np.float32) * np.float32(factor)


def as_bfloat16(values):
    """Numbers rounded to bfloat16, as float32 is."""
    return values.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def of_rank(values, rank):
    """(N, k_blocks), (N, 1) or (1, 1) values as DequantizeLinear takes them."""
    return values.T if rank == 2 else values.reshape((-1,) if rank else ())


class Bytes:
    """A constant somewhere in a file: its bytes are not aligned, and may only be read."""

    def __init__(self, array, element_type=None, shape=None):
        raw = np.empty(array.nbytes + 1, np.uint8)
        raw[1:] = array.reshape(-1).view(np.uint8)
        raw.flags.writeable = False
        self._bytes, self._array = raw[1:], array
        self.element_type = element_type or element_type_of(array)
        self.shape = array.shape if shape is None else shape
        self.nbytes = array.nbytes

    def numpy(self):
        if self.shape:
            raise AssertionError("an operand must be read where it lies")
        return self._array

    def packed(self):
        return self._bytes


class Derived:
    """A constant that would be made of a DequantizeLinear node's."""

    def __init__(self, transformation, source, shape):
        self.transformation, self.sources, self.shape = f"{transformation} (32)", (source,), shape

    def numpy(self):
        raise AssertionError("a derived operand must not be made")

    packed = numpy


class Case:
    """A node, its operands in one of the layouts, and the weight they stand for."""

    def __init__(
        self,
        bits,
        block,
        size_k,
        size_n,
        *,
        zeros="none",
        by_columns=False,
        signed=False,
        scale_rank=2,
        seed=0,
        smallest=None,
        is_stored=False,
    ):
        rng = np.random.default_rng([seed, bits, block, size_k, size_n])
        self.bits, self.block, self.size_k, self.size_n = bits, block, size_k, size_n
        self.blocks, half = -(-size_k // block), 1 << (bits - 1)
        codes = rng.integers(0, 2 * half, (size_n, size_k)).astype(np.uint8)
        shape = {2: (size_n, self.blocks), 1: (size_n, 1), 0: (1, 1)}[scale_rank]
        scales = rng.uniform(0.01, 0.1, shape).astype(np.float32)
        if smallest is not None:
            scales[-1, -1] = smallest
        offsets = {"none": np.full(shape, half), "zero": np.zeros(shape)}.get(zeros, rng.integers(0, 2 * half, shape))
        if zeros == "float":
            offsets = rng.uniform(0, 2 * half, shape).astype(np.float32)
        wide = [np.repeat(np.broadcast_to(x, (size_n, self.blocks)), block, 1)[:, :size_k] for x in (scales, offsets)]
        self.weight = (codes - wide[1].astype(np.float64)) * wide[0]
        self.few_rows, self.weight_of_few = GEMV_ROWS[False, by_columns], self.weight
        takes_unit = has_amx() and block % 32 == 0 and zeros != "float"
        self.most_rows_of_bytes = AMX_BF16_ROWS[by_columns] - 1 if takes_unit else sys.maxsize
        with np.errstate(invalid="ignore"):  # a scale may be infinite
            self.rounded_weight = as_bfloat16(codes * wide[0].astype(np.float64) - wide[1].astype(np.float32) * wide[0])
        self.group = block if by_columns else 32 // bits
        self.is_stored = is_stored
        if is_stored and not smallest:
            self.weight_of_few = (codes - wide[1].astype(np.float64)) * rounded(wide[0])
        self.constants = (self.columns if by_columns else self.rows)(codes, scales, offsets, zeros, signed, scale_rank)

    def rows(self, codes, scales, offsets, zeros, signed, scale_rank):
        padded = np.zeros((self.size_n, self.blocks * self.block), np.uint8)
        padded[:, : self.size_k] = codes
        constants = {1: Bytes(pack(padded.reshape(self.size_n, self.blocks, -1), self.bits)), 2: Bytes(scales)}
        if zeros != "none":
            constants[3] = Bytes(offsets if zeros == "float" else pack(offsets, self.bits))
        return constants

    def columns(self, codes, scales, offsets, zeros, signed, scale_rank):
        element_type, half = (SIGNED if signed else UNSIGNED)[self.bits], 1 << (self.bits - 1)
        lower = half if signed else 0
        mask = 2 * half - 1

        def source(values, rank):
            values = of_rank(values, rank)
            if rank == 0:
                return Bytes(np.asarray(int(values) - lower, np.int8 if signed else np.uint8), element_type)
            return Bytes(
                pack((np.asarray(values, np.int64) - lower).astype(np.uint8) & mask, self.bits), element_type, values.shape
            )

        scales = of_rank(scales, scale_rank)
        shape, packed = (self.size_n, self.blocks), (self.size_n, -(-self.blocks * self.bits // 8))
        in_blocks = (*shape, self.block * self.bits // 8)
        constants = {
            1: Derived(matmul_nbits_layout.WEIGHT_FROM_DEQUANTIZE_LINEAR, source(codes, 2), in_blocks),
            2: Derived(matmul_nbits_layout.SCALES_FROM_DEQUANTIZE_LINEAR, Bytes(np.array(scales, order="C")), shape),
        }
        if zeros != "none":
            rank = 0 if zeros == "zero" else scale_rank
            offsets = source(offsets if rank else offsets[:1, :1], rank)
            constants[3] = Derived(matmul_nbits_layout.ZERO_POINTS_FROM_DEQUANTIZE_LINEAR, offsets, packed)
        return constants

    def kernel(self, accuracy_level, bias=False, **attributes):
        arguments = [NodeArg("a", "tensor(float)", (None, self.size_k))]
        types = {1: "uint8", 2: "float", 3: "uint8"}
        for index in (1, 2, 3):
            tensor = self.constants.get(index)
            is_float = getattr(tensor, "element_type", None) is TensorElementType.FLOAT
            arguments.append(None if tensor is None else NodeArg(f"x{index}", f"tensor({'float' if is_float else types[index]})"))
        arguments += [None, NodeArg("bias", "tensor(float)")] if bias else []
        info = KernelInfo(
            "MatMulNBits",
            1,
            MICROSOFT,
            attributes={
                "K": self.size_k,
                "N": self.size_n,
                "bits": self.bits,
                "block_size": self.block,
                "accuracy_level": accuracy_level,
                **attributes,
            },
            inputs=tuple(arguments),
            outputs=(NodeArg("y", "tensor(float)"),),
            constants=self.constants,
        )
        (row,) = kernel_registry().candidates(MICROSOFT, "MatMulNBits")
        kernel = row.create(info)
        for index, tensor in self.constants.items():
            kernel.use_prepacked(kernel.prepack(tensor, index, FileMemory() if self.is_stored else None), index)
        return kernel

    def check(self, rows, accuracy_level, *, bias=False):
        rng = np.random.default_rng(rows)
        a = rng.standard_normal((rows, self.size_k)).astype(np.float32)
        a.flags.writeable = False
        added = rng.standard_normal(self.size_n).astype(np.float32) if bias else None
        kernel = self.kernel(accuracy_level, bias)
        x, weight = a.astype(np.float64), self.weight
        if accuracy_level == INT8:
            x, weight = self.operands_of_int8(a)
        expected = x @ weight.T + (0 if added is None else added)
        inputs = [a, None, None, None, None, added] if bias else [a, None, None, *[None] * (3 in self.constants)]
        scale = (np.abs(x) @ np.abs(self.weight).T).max()
        np.testing.assert_allclose(kernel.compute(*inputs) / scale, expected / scale, rtol=0, atol=TOLERANCE)
        for is_fixed in (False, True):
            out = np.full(expected.shape, np.nan, np.float32)
            call = bound(kernel, inputs, out, is_fixed=is_fixed)
            call()
            np.testing.assert_array_equal(out, kernel.compute(*inputs))
            assert hasattr(call, "native") == is_fixed

    def operands_of_int8(self, a):
        """What rows of activations and the weight are taken for."""
        if len(a) <= self.few_rows:
            return quantized(a, self.group), self.weight_of_few
        if len(a) > self.most_rows_of_bytes:
            return as_bfloat16(a), self.rounded_weight
        return quantized(a, self.block), self.weight


def bound(kernel, inputs, out, *, is_fixed=True):
    slots = [SimpleNamespace(array=array, is_fixed=is_fixed) for array in (*inputs, out)]
    return kernel.bind(slots[:-1], slots[-1:])


ROW_COUNTS = (1, 3, 7, 29)
SIZES_OF_K = (15, 72, 1000)


@pytest.mark.parametrize("accuracy_level", [EXACT, INT8])
@pytest.mark.parametrize("zeros", ["none", "packed", "float"])
@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weight_by_rows(bits, block, zeros, accuracy_level):
    for index, size_k in enumerate((block, *SIZES_OF_K)):
        is_stored = accuracy_level == INT8 and index % 2 == 1
        case = Case(bits, block, size_k, (1, 19, 45, 64)[index], zeros=zeros, is_stored=is_stored)
        for rows in ROW_COUNTS:
            case.check(rows, accuracy_level, bias=rows != 3)


@pytest.mark.parametrize("accuracy_level", [EXACT, INT8])
@pytest.mark.parametrize(
    ("signed", "zeros", "scale_rank"),
    [
        (False, "none", 2),
        (False, "packed", 2),
        (False, "zero", 2),
        (False, "packed", 1),
        (True, "none", 2),
        (True, "packed", 2),
        (True, "packed", 1),
        (True, "none", 0),
        (False, "zero", 0),
    ],
)
@pytest.mark.parametrize("block", [16, 32, 64, 256])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weight_by_columns(bits, block, signed, zeros, scale_rank, accuracy_level):
    strip = 64 * 8 // bits
    for index, size_k in enumerate((block, *SIZES_OF_K)):
        size_n = (strip, strip + 8, 2 * strip + 8, 3 * strip)[index]
        case = Case(bits, block, size_k, size_n, zeros=zeros, by_columns=True, signed=signed, scale_rank=scale_rank)
        for rows in ROW_COUNTS:
            case.check(rows, accuracy_level, bias=rows != 3)


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("accuracy_level", [EXACT, INT8])
def test_panels_are_made_piece_by_piece(accuracy_level, by_columns, monkeypatch):
    from ort_sdk_cpu.gemm.nbits import plan

    monkeypatch.setattr(plan, "PANEL_BYTES", {False: 1, True: 1})
    monkeypatch.setattr(plan, "MC", 12)
    for bits in (2, 4, 8):
        Case(bits, 16, 1000, 1024, zeros="packed", by_columns=by_columns).check(40, accuracy_level, bias=True)


@pytest.mark.instruction_sets
@pytest.mark.parametrize(
    ("level", "bits"),
    [
        ("avx512", 4),
        ("avx2", 4),
        ("portable", 8),
        *(pytest.param("avx2", bits, marks=pytest.mark.slow) for bits in (2, 8)),
        *(pytest.param("portable", bits, marks=pytest.mark.slow) for bits in (2, 4)),
    ],
)
def test_other_instruction_sets(level, bits):
    """Shifts and masks of the widths are the same at all levels, products of bytes are not: the widest are in the plain one."""
    if InstructionSet[level.upper()] >= instruction_set() or InstructionSet[level.upper()] > machine_instruction_set():
        pytest.skip("not below what is tested anyway")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(Path(__file__))]
    chosen = ["-k", f"[{bits}-32- and (by_rows or by_columns) and (packed or none) or infinities_give and [{bits}-"]
    environment = os.environ | {"ORT_SDK_CPU_ISA": level}
    done = subprocess.run([*command, *chosen], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("accuracy_level", [EXACT, INT8])
def test_rows_of_a_weight_are_a_product_of_few_rows_for_sequences(accuracy_level):
    assert Case(4, 32, 64, 128).kernel(accuracy_level).gemv().most == GEMV_ROWS[accuracy_level == EXACT, False]
    assert Case(4, 32, 64, 128, by_columns=True).kernel(accuracy_level).gemv() is None


def test_wrong_shapes_are_refused():
    case = Case(4, 32, 64, 8)
    with pytest.raises(InvalidArgument, match="A has shape"):
        case.kernel(EXACT).compute(np.ones((2, 63), np.float32), None, None)
    bias = np.ones(7, np.float32)
    with pytest.raises(InvalidArgument, match="bias"):
        case.kernel(EXACT, bias=True).compute(np.ones((2, 64), np.float32), None, None, None, None, bias)
    case.constants[2] = Bytes(np.ones((8, 1), np.float32))
    with pytest.raises(InvalidArgument, match="scales"):
        case.kernel(EXACT).compute(np.ones((2, 64), np.float32), None, None)
    case = Case(4, 32, 64, 8, zeros="packed")
    case.constants[3] = Bytes(np.ones((8, 2), np.uint8))
    with pytest.raises(InvalidArgument, match="zero_points"):
        case.kernel(EXACT).compute(np.ones((2, 64), np.float32), None, None, None)


def test_no_rows_give_no_rows():
    kernel = Case(4, 32, 64, 8).kernel(EXACT)
    assert kernel.compute(np.ones((0, 3, 64), np.float32), None, None).shape == (0, 3, 8)


def test_infinities_and_zeros_in_activations():
    case = Case(4, 32, 64, 40)
    kernel = case.kernel(INT8)
    a = np.zeros((2, 64), np.float32)
    a[1, 33] = 2.0
    np.testing.assert_allclose(kernel.compute(a, None, None), a @ case.weight_of_few.T, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("smallest", [0.0, 1e-12, np.inf])
@pytest.mark.parametrize("zeros", ["none", "packed"])
def test_scales_that_float16_does_not_hold_are_read_as_they_are(zeros, smallest):
    case = Case(4, 32, 1000, 19, zeros=zeros, smallest=smallest, is_stored=True)
    kernel = case.kernel(INT8)
    assert has_float16_scales(kernel.prepack(case.constants[2], 2, FileMemory()).buffers[0]) == (not smallest)
    if smallest:
        case.weight[-1] = case.weight_of_few[-1] = 0
    a = np.random.default_rng(0).standard_normal((3, 1000)).astype(np.float32)
    x, weight = case.operands_of_int8(a)
    found = kernel.compute(a, *[None] * len(case.constants))
    scale = (np.abs(x) @ np.abs(weight).T).max()
    np.testing.assert_allclose(found[:, :-1] / scale, (x @ weight.T)[:, :-1] / scale, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("is_stored", [False, True])
def test_scales_of_a_loader_are_loaded_once(is_stored):
    case, loaded = Case(4, 32, 64, 8, is_stored=is_stored), []

    class Loaded(Bytes):
        """Kept while somebody holds it."""

        held = None

        def packed(self):
            found = self.held and self.held()
            if found is None:
                loaded.append(super().packed().copy())
                self.held = weakref.ref(loaded[-1])
                found = loaded[-1]
                loaded[-1] = None
            return found

    case.constants[2] = Loaded(case.constants[2]._array)
    kernel = case.kernel(INT8)
    kernel.compute(np.ones((1, 64), np.float32), None, None)
    assert loaded == [None]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_few_rows_lose_less_than_blocks_quantized_would(bits):
    case = Case(bits, 128, 1024, 256, zeros="packed")
    a = np.random.default_rng(0).standard_normal((4, 1024)).astype(np.float32)
    expected = a.astype(np.float64) @ case.weight.T
    errors = [found - expected for found in (case.kernel(INT8).compute(a, None, None, None), quantized(a, 128) @ case.weight.T)]
    assert np.square(errors[0]).mean() < 0.7 * np.square(errors[1]).mean()


@pytest.mark.parametrize("accuracy_level", [EXACT, INT8])
@pytest.mark.parametrize("rows", [1, 20])
def test_joined_calls_share_working_memory(rows, accuracy_level):
    kernels = [Case(4, 32, size_k, 256).kernel(accuracy_level) for size_k in (64, 512, 4096)]
    inputs = [np.random.default_rng(0).standard_normal((rows, size_k)).astype(np.float32) for size_k in (64, 512, 4096)]
    outputs = [np.empty((rows, 256), np.float32) for _ in kernels]
    calls = [bound(kernel, (a, None, None), out) for kernel, a, out in zip(kernels, inputs, outputs, strict=True)]
    few, all_of_them = CallList(calls[:2]), CallList(calls)
    for batch in (few, all_of_them, few):
        for out in outputs:
            out.fill(np.nan)
        batch()
        for kernel, a, out in list(zip(kernels, inputs, outputs, strict=True))[: len(batch._calls)]:
            np.testing.assert_array_equal(out, kernel.compute(a, None, None))


@pytest.mark.parametrize("accuracy_level", [EXACT, INT8])
def test_operands_that_may_change_are_looked_at_each_time(accuracy_level):
    case = Case(4, 32, 64, 8)
    kernel = case.kernel(accuracy_level)
    kernel._float16_scales = None
    kernel._views.clear()
    operands = [case.constants[index].packed() for index in (1, 2)]
    codes, scales = operands[0].view(np.uint8).reshape(8, 2, 16), operands[1].copy().view(np.float32).reshape(8, 2)
    a, out = np.ones((1, 64), np.float32), np.empty((1, 8), np.float32)
    call = bound(kernel, (a, codes, scales), out)
    call()
    np.testing.assert_allclose(out, a @ case.weight.T, rtol=1e-5, atol=1e-6)
    assert not hasattr(call, "native")


@pytest.mark.parametrize("rows", [1, 20])
def test_threads_share_a_kernel(rows):
    case = Case(4, 32, 512, 256)
    kernel = case.kernel(INT8)
    inputs = [np.random.default_rng(seed).standard_normal((rows, 512)).astype(np.float32) for seed in range(4)]
    expected = [kernel.compute(a, None, None) for a in inputs]
    faults = []

    def work(index):
        results = (kernel.compute(inputs[index], None, None) for _ in range(50))
        faults.extend(index for result in results if not np.array_equal(result, expected[index]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_number_that_is_not_finite_stays_in_its_row(bits, value):
    case = Case(bits, 32, 256, 6)
    a = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
    expected = case.kernel(EXACT).compute(a, None, None)
    a[1, 40] = value
    found = case.kernel(EXACT).compute(a, None, None)
    np.testing.assert_array_equal(found[[0, 2]], expected[[0, 2]])
    assert not np.isfinite(found[1]).any()


@pytest.mark.parametrize("factor", [1e-37, 1e-20, 1e30])
def test_small_and_large_activations_keep_their_digits(factor):
    case = Case(4, 32, 256, 6)
    a = np.random.default_rng(0).standard_normal((1, 256)).astype(np.float32) * np.float32(factor)
    expected = a.astype(np.float64) @ case.weight.T
    scale = (np.abs(a.astype(np.float64)) @ np.abs(case.weight).T).max()
    found = case.kernel(EXACT).compute(a, None, None)
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=TOLERANCE + 256 * 1.2e-38 / scale)


@pytest.mark.parametrize("rows", [1, 4, 16])
@pytest.mark.parametrize(
    ("by_columns", "zeros"), [(False, "none"), (False, "packed"), (False, "float"), (True, "none"), (True, "packed")]
)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_infinities_give_what_sums_of_products_give(bits, by_columns, zeros, rows):
    case = Case(bits, 32, 250, 300, zeros=zeros, by_columns=by_columns, signed=by_columns)
    a = np.random.default_rng(0).standard_normal((rows, 250)).astype(np.float32)
    bias, scale = np.linspace(-1, 1, 300, dtype=np.float32), (np.abs(a.astype(np.float64)) @ np.abs(case.weight).T).max()
    a[rows // 2, 249] = np.inf
    a[-1, 40] = -np.inf
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ case.weight.T + bias
    kernel, rest = case.kernel(EXACT, bias=True), [None] * (len(case.constants) + (zeros == "none") + 1)
    found = kernel.compute(a, *rest, bias)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * scale)
    assert np.isinf(found).any()


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("zeros", ["none", "packed"])
@pytest.mark.parametrize("block", [16, 32, 128])
def test_long_sums_of_few_rows_lose_little(block, zeros, by_columns):
    case = Case(4, block, 8192, 128, zeros=zeros, by_columns=by_columns)
    a = np.random.default_rng(0).standard_normal((2, 8192)).astype(np.float32)
    expected = a.astype(np.float64) @ case.weight.T
    found = case.kernel(EXACT).compute(a, *[None] * len(case.constants))
    # VNNI adds products exactly. Elsewhere 16 lanes add dot products of 8 codes one after the other; the error of n sums of
    # independent terms is their root mean square times sqrt(n / 6) half units (a sum of k terms grows with sqrt(k), and
    # rounding it is off by up to half a unit, evenly), and of the four sums of lanes sqrt(4 / 3).
    lengths = (8192 // (16 * 8), 8, 4 * 2)
    in_float32 = np.sqrt(sum(lengths) / 6) * np.finfo(np.float32).eps / 2
    assert np.sqrt(((found - expected) ** 2).mean() / (expected**2).mean()) < (1.5e-7 if has_vnni() else in_float32)
