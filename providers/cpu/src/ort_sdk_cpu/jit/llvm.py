"""LLVM through llvmlite: for code that is not cached yet, or that cannot be mapped as an image."""

from __future__ import annotations

import functools
from typing import Any

from ort_sdk_cpu.jit.elf.image import can_link
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.targets import current_target

__all__ = ["emit_object", "load_object", "parse_ir", "target_machine"]

OPTIMIZATION_LEVEL = 3


@functools.cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm


def target_machine(level: int = OPTIMIZATION_LEVEL) -> Any:
    """LLVM's target machine for this process's target; its code is position-independent where it can be linked into an image.

    Args:
        level: optimization level of code generation, 0 to 3.
    """
    llvm = _llvm()
    target = llvm.Target.from_default_triple()
    relocation = {"reloc": "pic", "codemodel": "small"} if can_link() else {"codemodel": "jitdefault"}
    own = current_target()
    cpu, features = (own.cpu, own.features) if own.cpu else (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    return target.create_target_machine(cpu, features, opt=level, **relocation)


def parse_ir(text: str) -> Any:
    """Parse a module of LLVM IR."""
    return _llvm().parse_assembly(text)


def emit_object(text: str) -> bytes:
    """Object file of a module of LLVM IR that is optimized already."""
    return bytes(target_machine().emit_object(parse_ir(text)))


def load_object(code: bytes, symbol: str) -> int:
    """Load an object file for the rest of the process's life; returns the address of a function in it, 0 if it has none.

    Args:
        code: the object file.
        symbol: the function's name.
    """
    engine = _engine()
    engine.add_object_file(_llvm().ObjectFileRef.from_data(code))
    engine.finalize_object()
    return int(engine.get_function_address(symbol))


@functools.cache
def _engine() -> Any:
    load_openmp_symbols()
    return _llvm().create_mcjit_compiler(parse_ir(""), _llvm().Target.from_default_triple().create_target_machine())


@functools.cache
def load_openmp_symbols() -> None:
    """Load OpenMP's symbols into LLVM, which aborts the process at an unresolved symbol."""
    if libraries.has_openmp():
        _llvm().load_library_permanently(libraries.OPENMP_FILE)
