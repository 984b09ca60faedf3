"""Kernels that go through rows: reductions, softmax, normalizations. Their input is an expression, computed as they load."""
