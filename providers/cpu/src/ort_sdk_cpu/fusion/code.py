"""Machine code of chains: compiled by llvmlite in some milliseconds, kept in memory and in the folder of compiled kernels."""

from __future__ import annotations

import functools
import hashlib
import threading
from pathlib import Path
from typing import Any

from ort_sdk_cpu import machine_code
from ort_sdk_cpu.jit import cache_folder, source_hash

from .chain import Chain, written
from .vector_functions import vector_functions

__all__ = ["address_of", "is_compiled"]

OPTIMIZATION_LEVEL = 2


def is_compiled(chain: Chain) -> bool:
    """Whether a chain's code is in memory or in the folder."""
    return _code().is_compiled(chain)


def address_of(chain: Chain) -> int:
    """Address of a chain's code, for ``machine_code.TaskCall``; compiled if it is not there. Thread-safe."""
    return _code().address(chain)


@functools.cache
def _code() -> _Code:
    return _Code()


class _Code:
    def __init__(self) -> None:
        import llvmlite.binding as llvm

        self._llvm = llvm
        self._lock = threading.Lock()
        self._addresses: dict[str, int] = {}
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple()
        features = llvm.get_host_cpu_features().flatten()
        self._machine = target.create_target_machine(llvm.get_host_cpu_name(), features, opt=OPTIMIZATION_LEVEL)
        empty = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(empty, target.create_target_machine())

    def is_compiled(self, chain: Chain) -> bool:
        symbol = self._symbol(chain)
        path = _path(symbol)
        return symbol in self._addresses or (path is not None and path.is_file())

    def address(self, chain: Chain) -> int:
        symbol = self._symbol(chain)
        with self._lock:
            found = self._addresses.get(symbol)
            if found is None:
                self._engine.add_object_file(self._llvm.ObjectFileRef.from_data(self._object(chain, symbol)))
                self._engine.finalize_object()
                found = self._addresses[symbol] = self._engine.get_function_address(symbol)
        return found

    def _symbol(self, chain: Chain) -> str:
        return "chain_" + hashlib.sha256(f"{_source()} {_environment()} {chain}".encode()).hexdigest()[:24]

    def _object(self, chain: Chain, symbol: str) -> bytes:
        path = _path(symbol)
        found = machine_code.read_code(path)
        if found is not None:
            return found[1]
        text, functions = written(chain)
        libraries = [vector_functions()[name] for name in sorted(functions)]
        code = self._compiled(text.replace("SYMBOL", symbol), libraries)
        machine_code.write_code(path, symbol, code)
        return code

    def _compiled(self, text: str, libraries: list[str]) -> bytes:
        llvm, machine = self._llvm, self._machine
        header = f'target datalayout = "{machine.target_data}"\ntarget triple = "{machine.triple}"\n'
        module = llvm.parse_assembly(header + text)
        for library in libraries:
            module.link_in(self._inlined(library))
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=OPTIMIZATION_LEVEL))
        builder.getModulePassManager().run(module, builder)
        return bytes(machine.emit_object(module))

    def _inlined(self, library: str) -> Any:
        """A module whose functions become part of those that call them."""
        module = self._llvm.parse_assembly(library)
        for function in module.functions:
            if not function.is_declaration and not function.name.startswith("vector_"):
                function.linkage = "internal"
                function.add_function_attribute("alwaysinline")
            elif not function.is_declaration:
                function.linkage = "linkonce_odr"
        for variable in module.global_variables:
            variable.linkage = "internal"
        return module


@functools.cache
def _source() -> str:
    """Hash of the code that writes chains and of the functions they take in."""
    digest = hashlib.sha256(source_hash().encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def _environment() -> str:
    return machine_code.compiler_environment()


def _path(symbol: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / f"{symbol}.o"
