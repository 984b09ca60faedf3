"""Kernels: each Python module has its OpenCL C beside it."""
