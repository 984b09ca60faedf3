"""Vectors of 16 numbers inside numba kernels: types, and operations that become single instructions where the machine has them.

LLVM does not vectorise kernels over packed integers by itself; these operations say what is meant. They are functions for code
that numba compiles, cannot be called from Python, and take addresses as integers. Importing a module here imports numba.
"""
