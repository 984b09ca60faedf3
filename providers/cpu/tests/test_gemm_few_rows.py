"""GEMM of few rows with B (N, K), by dot products of four rows at a time."""

import numpy as np
import pytest
from ort_sdk_cpu.gemm.plan import GemmCall
from ort_sdk_cpu.gemm.select import GemmProblem
from ort_sdk_cpu.kernel.activation import Activation, ActivationKind
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries


@pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="GEMMs are compiled")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("inner", "columns"), [(7, 1), (48, 33), (300, 130), (5000, 70)])
@pytest.mark.parametrize("rows", [4, 5, 8, 9, 10, 11])
def test_few_rows(rows, inner, columns, threads):
    rng = np.random.default_rng(rows)
    a, b, bias = (rng.standard_normal(shape, dtype=np.float32) for shape in ((rows, inner), (columns, inner), (columns,)))
    expected = np.maximum(0.5 * (a.astype(np.float64) @ b.T) + bias, 0)
    sizes = GemmProblem(rows, inner, columns, trans_b=True)
    product = GemmCall(sizes, Workspace(), alpha=0.5, activation=Activation(ActivationKind.LEAKY_RELU), most_threads=threads)
    out = np.full((rows, columns), np.nan, np.float32)
    product(a, b, bias, out)
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
