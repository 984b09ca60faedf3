"""Machine code of chains: compiled by llvmlite in some milliseconds, kept in memory and in the folder of compiled kernels."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ort_sdk_cpu.jit.archive.sources import sources_digest
from ort_sdk_cpu.jit.code_store import code_address, is_cached
from ort_sdk_cpu.jit.compiler.background import request_compilation
from ort_sdk_cpu.jit.task_code import compiler_environment
from ort_sdk_cpu.platform.digests import short_digest

from .ir import Chain, emit

__all__ = ["address_of", "compiled_chain", "is_compiled", "request", "symbol_of"]

OPTIMIZATION_LEVEL = 2


def is_compiled(chain: Chain) -> bool:
    """Whether a chain's code is in memory or in the folder."""
    return is_cached(symbol_of(chain))


def address_of(chain: Chain) -> int:
    """Address of a chain's code, for ``jit.task.TaskCall``; compiled if it is not there. Thread-safe."""
    symbol = symbol_of(chain)
    return code_address(symbol, functools.partial(compiled_chain, chain, symbol))


def request(chain: Chain) -> None:
    """Have a chain compiled in the background."""
    symbol = symbol_of(chain)
    request_compilation(symbol, functools.partial(compiled_chain, chain, symbol))


def symbol_of(chain: Chain) -> str:
    """Name of a chain's function and of its code."""
    return "chain_" + short_digest(_source(), compiler_environment(), str(chain))


@functools.cache
def _source() -> str:
    """Hash of the code that writes chains and of the functions they take in."""
    return short_digest(sources_digest("simd.math"), *(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))


def compiled_chain(chain: Chain, symbol: str, functions: Mapping[str, str] | None = None) -> tuple[str, bytes]:
    """Symbol and object file of a chain, made by llvmlite.

    Args:
        chain: what it computes.
        symbol: name of the function.
        functions: texts of the vector functions it may call, by name; those of this process if None.
    """
    import llvmlite.binding as llvm

    from ort_sdk_cpu.jit.llvm import parse_ir, target_machine

    if functions is None:
        from .math_library import vector_functions

        functions = vector_functions()
    text, called = emit(chain)
    machine = target_machine(OPTIMIZATION_LEVEL)
    header = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
    module = parse_ir(header + text.replace("SYMBOL", symbol))
    for name in sorted(called):
        module.link_in(_inlined(parse_ir(functions[name])))
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=OPTIMIZATION_LEVEL))
    builder.getModulePassManager().run(module, builder)
    return symbol, bytes(machine.emit_object(module))


def _inlined(module: Any) -> Any:
    """A module whose functions become part of those that call them."""
    for function in module.functions:
        if not function.is_declaration and not function.name.startswith("vector_"):
            function.linkage = "internal"
            function.add_function_attribute("alwaysinline")
        elif not function.is_declaration:
            function.linkage = "linkonce_odr"
    for variable in module.global_variables:
        variable.linkage = "internal"
    return module
