"""Kernels that numba compiles, a module per family."""
