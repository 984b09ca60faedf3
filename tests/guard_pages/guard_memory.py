"""Puts the memory of NumPy's arrays, and of the CPU provider's buffers, between inaccessible pages: ``install("back", ...)``."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy._core import _multiarray_umath

SOURCE = Path(__file__).with_name("guard_memory.c")
LIBRARY_VARIABLE = "ORT_SDK_GUARD_PAGES_LIBRARY"
"""Where the library is, for processes started by one that has built it."""
SIDES = {"back": 0, "front": 1}
FILL = 0xFF
"""Every byte of new arrays: NaN of floats, -1 of integers."""
_GET_HANDLER = 305
"""Of ``PyDataMem_GetHandler`` in NumPy's table of C functions, which only grows."""

_library = None


def build(folder):
    """Compile the library into a folder; returns its path."""
    target = Path(folder) / "guard_memory.so"
    command = [os.environ.get("CC", "cc"), "-O2", "-Wall", "-shared", "-fPIC", "-pthread", str(SOURCE), "-o", str(target)]
    subprocess.run(command, check=True)
    return target


def _pointer(capsule, name):
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get_pointer(capsule, name)


def _default_handler():
    """Address of NumPy's own handler: changed in place, it serves every thread, whatever context that has."""
    functions = ctypes.cast(_pointer(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    handler = ctypes.PYFUNCTYPE(ctypes.py_object)(functions[_GET_HANDLER])()
    return _pointer(handler, b"mem_handler")


def _most_arrays():
    """At a time: each takes two of the process's maps, and some have to be left for all else."""
    maps = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    return ctypes.c_uint64(max(maps // 2 - 4096, maps // 4))


def install(side, library, descriptor=2, fill=FILL):
    """Guard all arrays that are made from now on, for the rest of the process.

    Args:
        side: "back" or "front": on which the first byte outside is inaccessible; on the other it is the next page.
        library: what ``build`` gave.
        descriptor: of the file that faults are described in.
        fill: every byte of new arrays.
    """
    global _library  # noqa: PLW0603 - one for the process, as is what it changes
    if _library is None:
        _library = ctypes.PyDLL(str(library))
        for name in ("fallback_count", "array_count", "live_count"):
            getattr(_library, name).restype = ctypes.c_uint64
        error = _library.start(ctypes.c_void_p(_default_handler()), _most_arrays(), SIDES[side], fill, descriptor)
        if error:
            raise OSError(error, os.strerror(error))
    _library.set_side(SIDES[side])


def watch_faults():
    """Describe faults, before whoever handles them now; to be called after faulthandler is enabled."""
    error = _library.watch_faults()
    if error:
        raise OSError(error, os.strerror(error))


def tell_context(text):
    """Say what is being done, for what is said about faults."""
    _library.set_context(text.encode(errors="replace"))


def counts():
    """How many arrays were made, how many of them without guards, and how many there are."""
    return _library.array_count(), _library.fallback_count(), _library.live_count()


def take_buffers_apart():
    """Let parts of larger buffers, between which no page could lie, be arrays of their own; so are ends that nobody asked for."""
    from ort_sdk.formats.files import file_memory
    from ort_sdk.formats.files.byte_source import ByteSource
    from ort_sdk.memory import Arena

    Arena.reserve = _either(lambda self, nbytes: np.empty(0, np.uint8), Arena.reserve)
    Arena.view = staticmethod(_either(_own_view, Arena.view))
    ByteSource.range = _either(_copied(ByteSource.range), ByteSource.range)
    file_memory._plain = _either(_bytes, file_memory._plain)
    _take_providers_buffers_apart()


def _take_providers_buffers_apart():
    from ort_sdk_cpu.memory.allocator import CpuAllocator
    from ort_sdk_cpu.memory.result_pool import ResultPool
    from ort_sdk_cpu.memory.weight_arena import _Regions
    from ort_sdk_cpu.memory.workspace import Workspace
    from ort_sdk_cpu.onednn import execution

    CpuAllocator.allocate = _either(_own_allocation, CpuAllocator.allocate)
    ResultPool.empty = _either(lambda self, shape: np.empty(shape, np.float32), ResultPool.empty)
    _Regions.allocate = _either(lambda self, nbytes: _bytes(nbytes), _Regions.allocate)
    Workspace.array, Workspace.address = _either(_own_array, Workspace.array), _either(_own_address, Workspace.address)
    _replace(execution.aligned_bytes, _either(_bytes, execution.aligned_bytes))


_is_apart = True


def keep_together(is_kept):
    """Whether buffers are shared as they are without guards: for tests of how they are, and where they lie."""
    global _is_apart  # noqa: PLW0603 - one for the process
    _is_apart = not is_kept


def _either(own, original):
    def chosen(*arguments):
        return (own if _is_apart else original)(*arguments)

    return chosen


def _own_view(buffer, offset, shape, element_type):
    return np.empty(shape, element_type.numpy_dtype)


def _own_allocation(self, shape, element_type):
    return np.empty(tuple(shape), element_type.numpy_dtype)


def _bytes(nbytes):
    return np.empty(nbytes, np.uint8)


def _copied(view_of):
    """Ranges of a model's file as arrays of their own."""

    def copy_of(self, offset, length):
        copy = view_of(self, offset, length).copy()
        copy.flags.writeable = False
        return copy

    return copy_of


def _own_array(self, name, shape, dtype):
    return self._buffers.setdefault((name, shape, dtype), np.empty(shape, dtype))


def _own_address(self, name, nbytes):
    """Memory for each size that was asked for under a name, where the original has the largest for all."""
    return _own_array(self, name, (nbytes,), np.dtype(np.uint8)).ctypes.data


def _replace(function, other):
    """Use another function wherever modules have imported one."""
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()):
            if value is function:
                setattr(module, name, other)
