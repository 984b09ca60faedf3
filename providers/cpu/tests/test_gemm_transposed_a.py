"""GEMM whose A is transposed, contiguous either way, with a constant B."""

import numpy as np
import pytest
from ort_sdk_cpu.gemm.transposed_a import TransposedAGemm
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from ort_sdk.api import NodeArg

MICROSOFT = "com.microsoft"


@pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="GEMMs are compiled")
@pytest.mark.parametrize("shape", [(220, 30), (1, 257, 100), (2, 3, 256, 5)], ids=str)
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("is_contiguous_transposed", [False, True])
@pytest.mark.parametrize(("alpha", "weight_type"), [(1.0, np.float32), (0.25, np.float32), (0.25, np.float16)])
def test_fused_matmul(make_kernel, run_both, shape, trans_b, is_contiguous_transposed, alpha, weight_type):
    if weight_type is np.float16 and instruction_set() < InstructionSet.AVX2:
        pytest.skip("the processor does not convert halves")
    rng = np.random.default_rng(0)
    a = rng.standard_normal(shape, dtype=np.float32)
    a = np.ascontiguousarray(np.matrix_transpose(a)).swapaxes(-1, -2) if is_contiguous_transposed else a
    b = rng.standard_normal((80, shape[-2]) if trans_b else (shape[-2], 80), dtype=np.float32).astype(weight_type)
    attributes = {"transA": 1, "transB": trans_b, "alpha": alpha}
    kernel = make_kernel("FusedMatMul", (a, b), attributes, MICROSOFT, None, (1,), (NodeArg("y0", "tensor(float)"),))
    assert isinstance(kernel, TransposedAGemm)
    found, bound = run_both("FusedMatMul", a, b, domain=MICROSOFT, constants=(1,), **attributes)
    expected = alpha * np.matmul(np.matrix_transpose(a).astype(np.float64), b.T if trans_b else b)
    for one in (found[0], bound[0]):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)


def test_gemm(run_both):
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(shape, dtype=np.float32) for shape in ((256, 20), (256, 96), (96,)))
    found, bound = run_both("Gemm", a, b, c, constants=(1, 2), transA=1)
    for one in (found[0], bound[0]):
        np.testing.assert_allclose(one, a.T @ b + c, rtol=1e-4, atol=1e-4)
