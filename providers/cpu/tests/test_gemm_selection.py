"""Which kernel a node with a matrix product gets, and which algorithm computes a GEMM of known sizes."""

from types import SimpleNamespace

import numpy as np
import pytest
from ort_sdk_cpu.gemm.nbits import select as nbits
from ort_sdk_cpu.gemm.nbits.select import NBitsAlgorithm, NBitsProblem
from ort_sdk_cpu.gemm.select import GemmAlgorithm, GemmKernel, GemmNode, GemmProblem, select_algorithm, select_kernel
from ort_sdk_cpu.memory.allocator import CpuAllocator
from ort_sdk_cpu.platform import libraries

from ort_sdk.api import OrtMemoryInfo

from .conftest import Constant

needs_numba = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="GEMMs are compiled")


@pytest.fixture
def all_libraries(monkeypatch):
    """As where all libraries are installed."""
    usable = type("Usable", (), {"is_usable": True})
    monkeypatch.setattr(libraries, "has_openmp", lambda: True)
    monkeypatch.setattr(libraries, "compiled_kernels", lambda: usable)
    monkeypatch.setattr(libraries, "onednn", lambda: usable)


@pytest.fixture
def one_thread(monkeypatch):
    monkeypatch.setattr(libraries, "thread_count", lambda: 1)


@pytest.mark.usefixtures("all_libraries")
@pytest.mark.parametrize(
    ("problem", "threads", "expected"),
    [
        (GemmProblem(1, 768, 768, is_packed=True), 2, GemmAlgorithm.PACKED),
        (GemmProblem(128, 768, 768, trans_b=True, is_packed=True), 1, GemmAlgorithm.PACKED),
        (GemmProblem(1, 768, 768, is_float16=True), 2, GemmAlgorithm.FLOAT16),
        (GemmProblem(128, 768, 768, trans_b=True, is_float16=True), 1, GemmAlgorithm.FLOAT16_NK),
        (GemmProblem(1, 768, 768, trans_b=True), 2, GemmAlgorithm.GEMV_NK),
        (GemmProblem(10, 768, 768, trans_b=True), 2, GemmAlgorithm.GEMV_NK),
        (GemmProblem(11, 768, 768, trans_b=True), 2, GemmAlgorithm.BLOCKED_NK),
        (GemmProblem(1, 768, 768), 1, GemmAlgorithm.GEMV),
        (GemmProblem(2, 768, 16), 1, GemmAlgorithm.GEMV),
        (GemmProblem(3, 768, 1023), 1, GemmAlgorithm.BLOCKED),
        (GemmProblem(3, 768, 1024), 1, GemmAlgorithm.GEMV),
        (GemmProblem(4, 768, 4096), 1, GemmAlgorithm.BLOCKED),
        (GemmProblem(3, 768, 16), 2, GemmAlgorithm.SPLIT_K),
        (GemmProblem(4, 768, 1023), 2, GemmAlgorithm.BLOCKED),
        (GemmProblem(4, 768, 1024), 2, GemmAlgorithm.SPLIT_K),
        (GemmProblem(9, 768, 1024), 2, GemmAlgorithm.BLOCKED),
        (GemmProblem(1, 768, 4096), 2, GemmAlgorithm.SPLIT_K),
        (GemmProblem(1, 768, 4097), 2, GemmAlgorithm.GEMV),
        (GemmProblem(1, 63, 4096), 2, GemmAlgorithm.GEMV),
        (GemmProblem(128, 768, 768), 4, GemmAlgorithm.BLOCKED),
    ],
)
def test_algorithms(problem, threads, expected):
    assert select_algorithm(problem, threads) is expected


def test_split_k_needs_threads_that_wait_for_each_other(monkeypatch):
    monkeypatch.setattr(libraries, "has_openmp", lambda: False)
    assert select_algorithm(GemmProblem(1, 768, 768), 2) is GemmAlgorithm.GEMV


LARGE = {"k": 256, "n": 256, "gets_panels": True}


@pytest.mark.usefixtures("all_libraries")
@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (GemmNode(**LARGE), GemmKernel.CONSTANT_B),
        (GemmNode(**LARGE, stores_packed_weights=True), GemmKernel.CONSTANT_B),
        (GemmNode(k=128, n=128), GemmKernel.CONSTANT_B),
        (GemmNode(k=128, n=128, stores_packed_weights=True), GemmKernel.ONEDNN),
        (GemmNode(k=128, n=128, is_float16=True, stores_packed_weights=True), GemmKernel.USUAL),
        (GemmNode(**LARGE, trans_a=True, a_rank=2), GemmKernel.CONSTANT_B_TRANSPOSED_A),
        (GemmNode(**LARGE, trans_a=True), GemmKernel.USUAL),
        (GemmNode(k=256, n=63, trans_a=True, a_rank=2), GemmKernel.USUAL),
        (GemmNode(**LARGE, trans_batch=True), GemmKernel.USUAL),
        (GemmNode(k=127, n=129), GemmKernel.USUAL),
        (GemmNode(k=23, n=4096, is_plain=True), GemmKernel.SMALL),
        (GemmNode(is_plain=True), GemmKernel.SMALL),
        (GemmNode(is_plain=True, stores_packed_weights=True), GemmKernel.USUAL),
        (GemmNode(), GemmKernel.USUAL),
    ],
)
def test_kernels(node, expected):
    assert select_kernel(node) is expected


@pytest.mark.usefixtures("all_libraries")
def test_kernels_without_libraries(monkeypatch):
    unusable = type("Unusable", (), {"is_usable": False})
    monkeypatch.setattr(libraries, "compiled_kernels", lambda: unusable)
    assert select_kernel(GemmNode(**LARGE)) is GemmKernel.ONEDNN
    assert select_kernel(GemmNode(is_plain=True)) is GemmKernel.USUAL
    monkeypatch.setattr(libraries, "onednn", lambda: unusable)
    assert select_kernel(GemmNode(**LARGE)) is GemmKernel.USUAL


def nbits_problem(m, *, bits=4, block_size=32, is_kn=False, is_exact=True, has_float_zero_points=False):
    return NBitsProblem(m, 4096, 4096, bits, block_size, is_kn, is_exact, has_float_zero_points)


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (nbits_problem(1), NBitsAlgorithm.GEMV_INT8_LIMBS),
        (nbits_problem(8), NBitsAlgorithm.GEMV_INT8_LIMBS),
        (nbits_problem(9), NBitsAlgorithm.GEMM_FLOAT32),
        (nbits_problem(10, is_exact=False), NBitsAlgorithm.GEMV_INT8),
        (nbits_problem(11, is_exact=False), NBitsAlgorithm.GEMM_INT8),
        (nbits_problem(6, is_kn=True), NBitsAlgorithm.GEMV_KN),
        (nbits_problem(7, is_kn=True), NBitsAlgorithm.GEMM_FLOAT32),
        (nbits_problem(4, is_kn=True, is_exact=False), NBitsAlgorithm.GEMV_KN),
        (nbits_problem(5, is_kn=True, is_exact=False), NBitsAlgorithm.GEMM_INT8),
    ],
)
def test_algorithms_of_packed_integers(problem, expected, monkeypatch):
    monkeypatch.setattr(nbits, "has_amx", lambda: False)
    monkeypatch.setattr(nbits, "has_vnni", lambda: True)
    assert nbits.select_algorithm(problem) is expected
    monkeypatch.setattr(nbits, "has_vnni", lambda: False)
    without = NBitsAlgorithm.GEMV_FLOAT32 if expected is NBitsAlgorithm.GEMV_INT8_LIMBS else expected
    assert nbits.select_algorithm(problem) is without


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (nbits_problem(8), NBitsAlgorithm.GEMV_INT8_LIMBS),
        (nbits_problem(9), NBitsAlgorithm.AMX_BF16X3),
        (nbits_problem(9, is_kn=True, bits=8), NBitsAlgorithm.GEMM_FLOAT32),
        (nbits_problem(17, is_kn=True, bits=8), NBitsAlgorithm.AMX_BF16X3),
        (nbits_problem(39, is_exact=False), NBitsAlgorithm.GEMM_INT8),
        (nbits_problem(40, is_exact=False), NBitsAlgorithm.AMX_BF16),
        (nbits_problem(17, is_kn=True, is_exact=False), NBitsAlgorithm.AMX_BF16),
        (nbits_problem(128, block_size=16), NBitsAlgorithm.GEMM_FLOAT32),
        (nbits_problem(128, has_float_zero_points=True), NBitsAlgorithm.GEMM_FLOAT32),
    ],
)
def test_algorithms_of_packed_integers_on_a_matrix_unit(problem, expected, monkeypatch):
    monkeypatch.setattr(nbits, "has_amx", lambda: True)
    monkeypatch.setattr(nbits, "has_vnni", lambda: True)
    assert nbits.select_algorithm(problem) is expected


@needs_numba
@pytest.mark.parametrize(
    ("rows", "shape", "expected"),
    [(128, (256, 256), "packed panels"), (1, (128, 128), "gemv"), (16, (128, 128), "blocked"), (2, (4, 8), "gemv")],
)
def test_kernels_tell_their_algorithm(make_kernel, one_thread, rows, shape, expected):
    rng = np.random.default_rng(rows)
    x, weight = (rng.standard_normal(size, dtype=np.float32) for size in ((rows, shape[0]), shape))
    kernel = make_kernel("MatMul", [x, weight], {}, "", None, (1,), (None,))
    assert kernel.algorithm is None
    if kernel.packs_in_first_run:
        constant = Constant(weight)
        kernel.use_prepacked(kernel.prepack(constant, 1, CpuAllocator(OrtMemoryInfo())), 1)
    found = kernel.compute(x, weight)
    assert kernel.algorithm == expected
    np.testing.assert_allclose(found, x.astype(np.float64) @ weight, rtol=1e-5, atol=1e-4)


@needs_numba
def test_kernels_of_matrices_that_runs_give_tell_their_algorithm(make_kernel, one_thread):
    x, y = (np.ones(shape, np.float32) for shape in ((64, 100), (100, 50)))
    kernel = make_kernel("MatMul", [x, y], {}, "", None, (), (None,))
    kernel.compute(x, y)
    out = np.empty((64, 50), np.float32)
    slots = [SimpleNamespace(array=array, is_fixed=True, is_constant=False, shape=array.shape) for array in (x, y, out)]
    kernel.bind(slots[:2], slots[2:])()
    assert kernel.algorithm == "blocked"
    np.testing.assert_array_equal(out, np.full((64, 50), 100, np.float32))


def test_names_of_algorithms_tell_them_apart():
    names = [member.value for enum in (GemmAlgorithm, GemmKernel, NBitsAlgorithm) for member in enum]
    assert len(set(names)) == len(names)
