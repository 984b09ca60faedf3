"""CUDA's driver and compiler: what the provider needs of them, over ``cuda-bindings``, and how another one takes their place."""

from .compiler import CudaCompiler
from .cuda_driver import CudaDriver, Handle
from .cuda_error import CudaError
from .opening import Cuda, cuda, use_cuda

__all__ = ["Cuda", "CudaCompiler", "CudaDriver", "CudaError", "Handle", "cuda", "use_cuda"]
