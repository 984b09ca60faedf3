"""The device language's dialects: what differs between OpenCL C, CUDA C++ and a third party's language."""

from .dialect import CUDA, OPENCL, OPENCL_SUBGROUPS, Dialect

__all__ = ["CUDA", "OPENCL", "OPENCL_SUBGROUPS", "Dialect"]
