"""What takes NVRTC's place: it builds OpenCL C, in a dialect that has of it what CUDA's has."""

import dataclasses

import pyopencl as cl
from ort_sdk_cuda.driver.compiler import CompileError

from ort_sdk.device import OPENCL

HEAD = b"image of the stand-in\n"


class StandInCompiler:
    """Compiles for a computer.

    Args:
        computer: it.
        version: that it tells.
    """

    dialect = dataclasses.replace(OPENCL, name="cuda's stand-in", has_vector_math=False)
    options = ("-cl-kernel-arg-info",)
    library = "(stand-in)"
    architectures = (75, 80, 90)

    def __init__(self, computer, version="13.0"):
        self._computer, self.version = computer, version
        self.compiled = 0

    def compile(self, text, name, architecture):
        assert architecture.startswith("sm_")
        self.compiled += 1
        try:
            self._computer.program(text)
        except cl.RuntimeError as error:
            raise CompileError(str(error)) from error
        return HEAD + text.encode()
