"""What of the compiler's library is needed where code is not kept yet, or cannot be mapped as an image."""

from __future__ import annotations

import functools
from typing import Any

from ort_sdk_cpu.jit.elf.image import can_link
from ort_sdk_cpu.platform import libraries

__all__ = ["emitted", "load_object", "parsed", "target_machine"]

OPTIMIZATION_LEVEL = 3


@functools.cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm


def target_machine(level: int = OPTIMIZATION_LEVEL) -> Any:
    """This processor, with all it has; code is made for any address where it can be linked into an image."""
    llvm = _llvm()
    target = llvm.Target.from_default_triple()
    placing = {"reloc": "pic", "codemodel": "small"} if can_link() else {"codemodel": "jitdefault"}
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(llvm.get_host_cpu_name(), features, opt=level, **placing)


def parsed(text: str) -> Any:
    """A module of LLVM's language."""
    return _llvm().parse_assembly(text)


def emitted(text: str) -> bytes:
    """Object file of a module in LLVM's language that is optimized already."""
    return bytes(target_machine().emit_object(parsed(text)))


def load_object(code: bytes, symbol: str) -> int:
    """Load an object file for as long as the process lives; returns the address of its function, 0 if it has none."""
    engine = _engine()
    engine.add_object_file(_llvm().ObjectFileRef.from_data(code))
    engine.finalize_object()
    return int(engine.get_function_address(symbol))


@functools.cache
def _engine() -> Any:
    know_openmp()
    return _llvm().create_mcjit_compiler(parsed(""), _llvm().Target.from_default_triple().create_target_machine())


@functools.cache
def know_openmp() -> None:
    """Make OpenMP's functions known to the compiler, which ends the process where it does not know a function."""
    if libraries.has_openmp():
        _llvm().load_library_permanently(libraries.OPENMP_FILE)
