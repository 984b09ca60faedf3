"""Matrix products: Gemm, MatMulNBits, and what Einsum becomes."""
