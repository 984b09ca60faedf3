"""CUDA's compiler from its wheel, and what its code needs of a processor: no GPU and no driver."""

import ctypes
import re
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

OPTIONS = ("--std=c++17", "-default-device", "--fmad=true")


@dataclass(frozen=True)
class Resources:
    """Of a kernel, for each thread but for shared memory, which is a block's."""

    registers: int
    stack_bytes: int
    spilled_bytes: int
    shared_bytes: int


def installed(distribution, name):
    """Path of a file of a wheel; None if it is not installed."""
    try:
        files = metadata.files(distribution) or ()
    except metadata.PackageNotFoundError:
        return None
    return next((Path(path.locate()) for path in files if re.fullmatch(name, path.name)), None)


LIBRARY = installed("nvidia-cuda-nvrtc", r"libnvrtc\.so\.\d+")
CUOBJDUMP = installed("nvidia-cuda-cuobjdump", "cuobjdump")


class CompileError(Exception):
    """What the compiler said."""


def compiled(text, architecture):
    """The cubin of a source.

    Args:
        text: CUDA C++.
        architecture: ``sm_90``.
    """
    library = ctypes.CDLL(str(LIBRARY))
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None) == 0
    options = [option.encode() for option in (f"--gpu-architecture={architecture}", *OPTIONS)]
    code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    try:
        if code:
            raise CompileError(_content(library, program, "ProgramLog").decode(errors="replace"))
        return _content(library, program, "CUBIN")
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _content(library, program, what):
    size = ctypes.c_size_t()
    assert getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) == 0
    content = ctypes.create_string_buffer(size.value)
    assert getattr(library, f"nvrtcGet{what}")(program, content) == 0
    return content.raw


def resources(cubin, folder):
    """Kernel → what it needs."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    text = subprocess.run([str(CUOBJDUMP), "-res-usage", str(path)], check=True, capture_output=True, text=True).stdout
    found = {}
    for name, line in re.findall(r"Function (\w+):\s*\n\s*(.*)", text):
        numbers = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL|SHARED):(\d+)", line)}
        found[name] = Resources(numbers["REG"], numbers["STACK"], numbers["LOCAL"], numbers["SHARED"])
    return found
