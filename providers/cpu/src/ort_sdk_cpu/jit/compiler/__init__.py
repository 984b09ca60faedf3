"""Compiling in a process of its own: this one imports neither numba nor llvmlite, and goes on meanwhile."""
