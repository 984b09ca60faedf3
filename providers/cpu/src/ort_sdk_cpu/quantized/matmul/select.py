"""Which algorithm computes a GEMM of 8-bit integers: the one place that chooses.

QGemm and QLinearMatMul whose parameters are all constant are convolutions of one pixel wide, with their algorithms
(``quantized.conv.select``).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.kernel.task_writer import is_worth_a_task
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.quantized.parameters import BYTES, EXACT_FLOAT

from .arguments.dynamic_b import MODULE

__all__ = [
    "B_SCALE",
    "B_ZERO_POINT",
    "K_BLOCK",
    "QuantizedGemmAlgorithm",
    "are_sums_exact",
    "select_constant_b",
    "select_dynamic_b",
    "threads_for_work",
]

# Less work than for convolutions is worth a team: B is packed in each run, which threads share, too.
TEAM_WORK = 1 << 20
"""Multiplications from which on several threads are worth waking."""
# 256 products of at most 255 * 255 stay below 2^24.
K_BLOCK = 256
"""Rows of B whose sums float32 holds exactly, whatever they are."""
LARGEST_DIFFERENCE = 255
"""Of an element of A and its zero point."""
B_SCALE = {"DynamicQuantizeMatMul": 2, "MatMulIntegerToFloat": 3}
B_ZERO_POINT = {"DynamicQuantizeMatMul": 3, "MatMulIntegerToFloat": 5, "MatMulInteger": 3}
"""Operator → input."""
_FLOAT = np.dtype(np.float32)


class QuantizedGemmAlgorithm(enum.StrEnum):
    """How a GEMM of 8-bit integers is computed."""

    PACKED_B = "packed panels"
    """B is packed once, and multiplied as the weight of a convolution."""
    PACKED_B_SPLIT_K = "packed panels, split-K"
    """The same for blocks of K, whose sums are added up: float32 may not hold those of all of K."""
    DYNAMIC_B = "panels packed on the way"
    """B comes with each run."""
    NUMPY = "numpy"


def select_constant_b(info: KernelInfo) -> QuantizedGemmAlgorithm:
    """Of a DynamicQuantizeMatMul, MatMulIntegerToFloat or MatMulInteger node: ``PACKED_B`` if B and its parameters are constant.

    Whether K has to be split is seen when B is first read: ``are_sums_exact``.
    """
    # Panels are packed for one zero point and scale per column at most, and once: all of B's parameters have to stay.
    tensor, element = info.constants.get(1), info.input_element_type(1)
    if not libraries.compiled_kernels().is_usable or tensor is None or len(tensor.shape) != 2 or not all(tensor.shape):
        return QuantizedGemmAlgorithm.NUMPY
    zero_point, sizes = B_ZERO_POINT[info.op_type], {1, int(tensor.shape[1])}
    zeros = info.constant_input(zero_point)
    if element is None or element.numpy_dtype not in BYTES or (zeros is None and info.has_input(zero_point)):
        return QuantizedGemmAlgorithm.NUMPY
    if zeros is not None and zeros.size not in sizes:
        return QuantizedGemmAlgorithm.NUMPY
    if info.op_type in B_SCALE:
        scales = info.constant_input(B_SCALE[info.op_type])
        if scales is None or scales.dtype != _FLOAT or scales.size not in sizes:
            return QuantizedGemmAlgorithm.NUMPY
    return QuantizedGemmAlgorithm.PACKED_B


def are_sums_exact(matrix: HostArray, zeros: HostArray) -> bool:
    """Whether float32 holds all sums of products with a matrix less its zero points."""
    # The bound holds for every A, which is why A's zero point does not count; blocks keep the differences in a cache.
    total = np.zeros(matrix.shape[1], np.int64)
    for start in range(0, len(matrix), K_BLOCK):
        total += np.abs(matrix[start : start + K_BLOCK] - zeros.reshape(-1).astype(np.int16)).sum(axis=0)
    return bool(LARGEST_DIFFERENCE * total.max() <= EXACT_FLOAT)


def select_dynamic_b(a: HostArray, b: HostArray, zero_points: Sequence[HostArray | None]) -> QuantizedGemmAlgorithm:
    """For arrays that come with a run: of bytes, no matrix repeated but a single B, one zero point of A, one or a row of B."""
    if not BYTES.issuperset((a.dtype, b.dtype)) or min(a.ndim, b.ndim) < 2 or 0 in (*a.shape, *b.shape):
        return QuantizedGemmAlgorithm.NUMPY
    # A batch of B's for a batch of A's, or one B for all rows of A: other broadcasts would repeat matrices in memory.
    if a.shape[-1] != b.shape[-2] or (b.ndim > 2 and a.shape[:-2] != b.shape[:-2]):
        return QuantizedGemmAlgorithm.NUMPY
    # With one zero point of A, what corrects its sums is a number per column; one zero point per row would make it a product
    # for each result.
    a_zero, b_zero = zero_points
    is_a_known = a_zero is None or (a_zero.size == 1 and a_zero.dtype == a.dtype)
    is_b_known = b_zero is None or (b_zero.dtype == b.dtype and (b_zero.size == 1 or b_zero.shape == b.shape[-1:]))
    is_worth_it = is_worth_a_task(a.size + b.size, MODULE, "gemm_dynamic_b")
    return QuantizedGemmAlgorithm.DYNAMIC_B if is_a_known and is_b_known and is_worth_it else QuantizedGemmAlgorithm.NUMPY


def threads_for_work(multiplications: int) -> int:
    """Threads of a GEMM with a dynamic B."""
    return libraries.thread_count() if multiplications >= TEAM_WORK else 1
