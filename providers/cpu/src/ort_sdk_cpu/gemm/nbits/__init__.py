"""MatMulNBits."""
