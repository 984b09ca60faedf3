"""GEMM and GEMV of float32, with B of float32, float16 or packed integers."""
