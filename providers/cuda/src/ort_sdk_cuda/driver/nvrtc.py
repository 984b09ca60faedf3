"""CUDA's compiler NVRTC over ``cuda-bindings``. It needs no GPU."""

from __future__ import annotations

from typing import Any

from cuda.bindings import nvrtc

from ort_sdk.device import CUDA

from .compiler import CompileError
from .cuda_error import CudaError
from .loaded_library import loaded_library

__all__ = ["NvrtcCompiler"]


class NvrtcCompiler:
    """The installed NVRTC. Gives code of the architecture itself, which drivers of the same major version take.

    Raises:
        RuntimeError: its library is not there.
    """

    dialect = CUDA
    options: tuple[str, ...] = ("--std=c++17", "-default-device", "--fmad=true")

    def __init__(self) -> None:
        major, minor = _answered("nvrtcVersion", nvrtc.nvrtcVersion())
        self.version = f"{major}.{minor}"
        self.architectures = tuple(map(int, _answered("nvrtcGetSupportedArchs", nvrtc.nvrtcGetSupportedArchs())))
        self.library = loaded_library("libnvrtc.", "nvrtc64")

    def compile(self, text: str, name: str, architecture: str) -> bytes:
        program = _answered("nvrtcCreateProgram", nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], []))
        try:
            options = [option.encode() for option in (f"--gpu-architecture={architecture}", *self.options)]
            (code,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
            if code == nvrtc.nvrtcResult.NVRTC_ERROR_COMPILATION:
                raise CompileError(_content("ProgramLog", program).rstrip(b"\0").decode(errors="replace"))
            _answered("nvrtcCompileProgram", (code,))
            return _content("CUBIN", program)
        finally:
            nvrtc.nvrtcDestroyProgram(program)


def _content(what: str, program: Any) -> bytes:
    size = _answered(f"nvrtcGet{what}Size", getattr(nvrtc, f"nvrtcGet{what}Size")(program))
    # The function writes to the bytes it is given.
    content = bytes(int(size))
    _answered(f"nvrtcGet{what}", getattr(nvrtc, f"nvrtcGet{what}")(program, content))
    return content


def _answered(function: str, answer: tuple[Any, ...]) -> Any:
    code, *values = answer
    if int(code):
        raise CudaError(function, int(code), str(getattr(code, "name", code)))
    return values[0] if len(values) == 1 else values
