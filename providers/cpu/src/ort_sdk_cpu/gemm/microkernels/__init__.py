"""Micro-kernels: the innermost loops of tasks."""
