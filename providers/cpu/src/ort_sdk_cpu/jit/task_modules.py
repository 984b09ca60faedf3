"""Where tasks are: a name that launches, declarations and files of machine code have of a module, and the module."""

from __future__ import annotations

__all__ = ["TASK_MODULES"]

TASK_MODULES = {
    "matmul_nbits_activations": "gemm.nbits.compiled.activations",
    "matmul_nbits_columns": "gemm.nbits.compiled.gemv_kn",
    "matmul_nbits_panels_f32": "gemm.nbits.compiled.gemm_f32",
    "matmul_nbits_panels_i8": "gemm.nbits.compiled.gemm_i8",
    "matmul_nbits_rows_f32": "gemm.nbits.compiled.gemv_nk_f32",
    "matmul_nbits_rows_i32": "gemm.nbits.compiled.gemv_nk_i32",
    "matmul_nbits_rows_i8": "gemm.nbits.compiled.gemv_nk_i8",
    "matmul_nbits_tiles": "gemm.nbits.compiled.gemm_amx",
    "matmul_nbits_transposition": "gemm.nbits.compiled.transpose",
}
"""Name → module below ``ort_sdk_cpu``."""
