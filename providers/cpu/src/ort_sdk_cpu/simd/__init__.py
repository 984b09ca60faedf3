"""SIMD operations inside numba kernels: vectors of 16 lanes, with operations that are single instructions where they exist.

LLVM does not vectorize kernels over packed integers by itself; these operations express what is meant. They are functions for
code that numba compiles, cannot be called from Python, and take addresses as integers. Importing a module here imports numba.
"""
