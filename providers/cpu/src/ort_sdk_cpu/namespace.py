"""The array namespace of the shared operator set: NumPy, with compiled tasks for attention."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import HostArray
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.platform.threads import blas_matmul

from .platform import libraries

__all__ = ["CpuNamespace"]

MIN_WORK = 1 << 14
"""Elements of ``q`` times sequence length of ``k`` from which on the compiled task is worth loading."""


class CpuNamespace(NumpyNamespace):
    """Array namespace over NumPy and compiled tasks."""

    matmul = staticmethod(blas_matmul)

    def attention(self, q: HostArray, k: HostArray, v: HostArray, biases: Sequence[HostArray], scale: float) -> HostArray | None:
        """Scaled dot-product attention by a compiled task; None for other types than float32, and for little work."""
        work = q.size * k.shape[2]
        if (
            work < MIN_WORK
            or any(array.dtype != "float32" for array in (q, k, v, *biases))
            or not libraries.compiled_kernels().is_usable
        ):
            return None
        from ort_sdk_cpu.attention.grouped import grouped_attention

        return grouped_attention(q, k, v, biases, scale)
