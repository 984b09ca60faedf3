"""A stand-in for a GPU: CUDA's semantics in Python, with kernels computed by an OpenCL device as a GPU's are.

Streams do their work as late as possible, when somebody waits; memory is poisoned before and after its life; what CUDA forbids
while a stream is captured is an error; and faults can be planted.
"""

from .compiler import StandInCompiler
from .driver import StandInDriver

__all__ = ["StandInCompiler", "StandInDriver", "stand_in"]


def stand_in(**options):
    """Driver and compiler, to be given to ``use_cuda``."""
    from ort_sdk_cuda.driver import Cuda

    driver = StandInDriver(**options)
    return Cuda(driver, StandInCompiler(driver.computer))
