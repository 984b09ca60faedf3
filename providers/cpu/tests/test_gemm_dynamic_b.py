"""Products of 8-bit matrices that are both given in each run, beside sums in 64 bits."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, machine_instruction_set

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

SHAPES = [((4, 8), (8, 64)), ((1, 5), (5, 3)), ((7, 130), (130, 131)), ((2, 3, 6, 64), (2, 3, 64, 17)), ((3, 5, 33), (33, 70))]
TYPES = [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8), (np.int8, np.uint8)]


@pytest.fixture(autouse=True)
def _tasks_for_few_elements(monkeypatch):
    monkeypatch.setattr("ort_sdk_cpu.kernel.task_writer.MIN_ELEMENTS", 1)
    monkeypatch.setattr("ort_sdk_cpu.quantized.matmul.select.TEAM_WORK", 1 << 12)


def operands(shapes, types, seed=0):
    """Matrices with their largest numbers, and their zero points."""
    rng = np.random.default_rng(seed)
    found = []
    for shape, dtype in zip(shapes, types, strict=True):
        limits = np.iinfo(dtype)
        found.append(rng.integers(limits.min, limits.max, shape, dtype, endpoint=True))
    a_type, b_type = types
    zeros = [np.array(7, a_type), rng.integers(0, 100, shapes[1][-1]).astype(b_type)]
    return found, zeros


def sums_of(a, b, a_zero=0, b_zero=0):
    return (a.astype(np.int64) - np.int64(a_zero)) @ (b.astype(np.int64) - np.asarray(b_zero, np.int64))


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_sums(run_both, shapes, types):
    (a, b), (a_zero, b_zeros) = operands(shapes, types)
    for zeros in ((), (a_zero,), (a_zero, np.array(b_zeros[0])), (a_zero, b_zeros), (None, b_zeros)):
        _, (found,) = run_both("MatMulInteger", a, b, *zeros)
        np.testing.assert_array_equal(found, sums_of(a, b, *(0 if zero is None else zero for zero in zeros)))


@pytest.mark.parametrize("types", TYPES, ids=str)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_requantized(run_both, shapes, types):
    (a, b), (a_zero, b_zeros) = operands(shapes, types)
    b_zero, result_zero = np.array(b_zeros[0]), np.array(9, types[0])
    scales = [np.array(scale, np.float32) for scale in (0.02, 0.03, 0.5)]
    given = [a, scales[0], a_zero, b, scales[1], b_zero, scales[2], result_zero]
    expected, (found,) = run_both("QLinearMatMul", *given, constants=(1, 2, 4, 5, 6, 7))
    np.testing.assert_array_equal(found, expected[0])
    limits, factor = np.iinfo(types[0]), scales[0] * scales[1] / scales[2]
    rounded = np.rint(sums_of(a, b, a_zero, b_zero).astype(np.float32) * factor) + 9
    np.testing.assert_array_equal(found, np.clip(rounded, limits.min, limits.max))


def test_what_it_is_not_for(run_both):
    (a, b), _ = operands(((3, 1, 4, 8), (2, 8, 5)), TYPES[0])
    _, (found,) = run_both("MatMulInteger", a, b)
    np.testing.assert_array_equal(found, sums_of(a, b))
    permuted = np.asfortranarray(b[0])
    _, (found,) = run_both("MatMulInteger", a[0, 0], permuted, np.full(4, 3, np.uint8))
    np.testing.assert_array_equal(found, sums_of(a[0, 0], permuted, 3))


_CHILD = """
import sys
sys.path.insert(0, {folder!r})
import numpy as np
import test_gemm_dynamic_b as tests
from ort_sdk_cpu.quantized.matmul.dynamic_b import _Gemm
for types in tests.TYPES:
    (a, b), zeros = tests.operands(((7, 30), (30, 131)), types)
    out = np.empty((7, 131), np.int32)
    _Gemm(a, b, zeros).run(a, b, zeros, out)
    np.testing.assert_array_equal(out, tests.sums_of(a, b, *zeros))
"""


@pytest.mark.instruction_sets
@pytest.mark.parametrize("level", [level for level in InstructionSet if level < machine_instruction_set()])
def test_other_instruction_sets(level):
    environment = {**os.environ, "ORT_SDK_CPU_ISA": level.name.lower()}
    code = _CHILD.format(folder=str(Path(__file__).parent))
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
