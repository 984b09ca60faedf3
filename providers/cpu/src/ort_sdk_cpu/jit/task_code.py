"""Machine code of tasks: declared by a decorator, compiled by numba once per machine, then loaded from the cache folder.

A task is a function ``task(args, thread, threads)`` in a family's folder ``compiled``, made of the operations of
``ort_sdk_cpu.simd``. ``args`` is the address of its arguments, 8 bytes each. Loaded tasks run without numba, which takes longer
to import than most models take to run. Threads are OpenMP's, which oneDNN uses, too.

A record is the address of a task's code, followed by its arguments.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Callable
from typing import Any

from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.archives import platform_name
from ort_sdk_cpu.platform.contention import enable_affinity
from ort_sdk_cpu.platform.digests import short_digest
from ort_sdk_cpu.platform.processor import processor_id
from ort_sdk_cpu.platform.targets import InstructionSet, current_target

from .archive.recorded import module_digest
from .code_store import code_address, is_cached
from .native_call import CallRow

__all__ = [
    "WORD_BYTES",
    "Task",
    "can_run_tasks",
    "compiler_environment",
    "function_address",
    "ir_function",
    "ir_function_name",
    "is_compiled",
    "loaded_code",
    "module_of",
    "openmp_parallel",
    "parallel_record",
    "run_checked",
    "task",
    "task_address",
]

WORD_BYTES = 8
"""Bytes of a word of a record."""


_ENTRIES = """
{declared}
define void @run_task(ptr %record) {{
  %results = alloca [2 x ptr]
  %code = load ptr, ptr %record
  %arguments = getelementptr i8, ptr %record, i64 8
  %address = ptrtoint ptr %arguments to i64
  %exception = getelementptr [2 x ptr], ptr %results, i64 0, i64 1
  {threads}
  %status = call i32 %code(ptr %results, ptr %exception, i64 %address, i64 %thread, i64 %threads)
  ret void
}}
"""
"""Runs a record's task. In numba's calling convention pointers to the result and to the exception come before the arguments."""

_CHECKED = """
define i32 @run_checked(ptr %record) {
  %results = alloca [2 x ptr]
  %code = load ptr, ptr %record
  %arguments = getelementptr i8, ptr %record, i64 8
  %address = ptrtoint ptr %arguments to i64
  %exception = getelementptr [2 x ptr], ptr %results, i64 0, i64 1
  %status = call i32 %code(ptr %results, ptr %exception, i64 %address, i64 0, i64 1)
  %failed = load i64, ptr %arguments
  %narrow = trunc i64 %failed to i32
  ret i32 %narrow
}
"""
"""Runs a record's task on one thread and returns its first argument, which the task sets if it fails."""

_SERIAL = _ENTRIES.format(declared="", threads="%thread = add i64 0, 0\n%threads = add i64 0, 1")
_PARALLEL = _ENTRIES.format(
    declared="declare i32 @omp_get_thread_num()\ndeclare i32 @omp_get_num_threads()",
    threads="""%number = call i32 @omp_get_thread_num()
  %count = call i32 @omp_get_num_threads()
  %thread = sext i32 %number to i64
  %threads = sext i32 %count to i64""",
)


class Task:
    """A task's source.

    Args:
        function: ``function(args, thread, threads)``, whose first parameter is annotated with the class of its arguments.
        needs: the least level of instruction sets that code can be made for.
    """

    def __init__(self, function: Callable[[Any, int, int], None], needs: InstructionSet = InstructionSet.PORTABLE) -> None:
        self.function, self.needs = function, needs
        self.name = function.__name__

    @property
    def signature(self) -> Any:
        """The task's signature for numba."""
        from .argument_types import task_signature

        annotation = self.function.__annotations__[self.function.__code__.co_varnames[0]]
        return task_signature(annotation if isinstance(annotation, type) else self.function.__globals__[annotation])


def task(function: Callable[[Any, int, int], None], *, needs: InstructionSet = InstructionSet.PORTABLE) -> Task:
    """Decorator that declares a task; called with the level of instruction sets that it needs, if it needs one."""
    return Task(function, needs)


def module_of(name: str) -> str:
    """Module, below ``ort_sdk_cpu``, of the tasks that launches call ``<family>.<name>``."""
    family, _, own = name.rpartition(".")
    return f"{family}.compiled.{own}"


@functools.cache
def compiler_environment() -> str:
    """What code depends on beside its sources: system and target.

    Not the versions of numba and llvmlite: what was compiled is found where neither is installed.
    """
    target = current_target()
    processor = target.cpu or processor_id()
    return f"{platform_name()} {target.name} {processor} {target.features}"


class Code:
    """Machine code of tasks in this process."""

    def __init__(self) -> None:
        self._addresses: dict[tuple[str, str], int] = {}
        self.serial = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ir_function("run_task", _SERIAL))
        """``serial(record)`` runs a task on this thread."""

    @functools.cached_property
    def parallel(self) -> tuple[Callable[[int, int, int, int], None], int]:
        """OpenMP's entry point of parallel regions, and the address of the function that runs a record's task in one."""
        return openmp_parallel(), ir_function("run_task", _PARALLEL)

    def address(self, module: str, name: str) -> int:
        """Address of a task's code, which is compiled if it is not cached."""
        found = self._addresses.get((module, name))
        if found is None:
            found = code_address(_file_name(module, name), functools.partial(_built, module, name))
            self._addresses[module, name] = found
        return found


def is_compiled(module: str, name: str) -> bool:
    """Whether a task costs little to load: this process runs compiled tasks anyway, or the task is in the cache folder."""
    return bool(loaded_code.cache_info().currsize) or is_cached(_file_name(module, name))


def can_run_tasks() -> bool:
    """Whether the function that runs tasks is compiled."""
    return is_cached(ir_function_name("run_task", _SERIAL))


def _file_name(module: str, name: str) -> str:
    return f"{module}-{name}-{short_digest(compiler_environment(), name, module_digest(module_of(module)))}"


@functools.cache
def openmp_parallel() -> Callable[[int, int, int, int], None]:
    """OpenMP's entry point of parallel regions: ``start(function, argument, threads, 0)`` calls a C function on each thread."""
    enable_affinity()
    run = ctypes.CDLL(libraries.OPENMP_FILE).GOMP_parallel
    run.argtypes, run.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return run


def task_address(module: str, name: str) -> int:
    """Address of a task's code, which is compiled if it is not cached."""
    return loaded_code().address(module, name)


def parallel_record(row: CallRow) -> int:
    """Address of the record of the task that a row runs on several threads; 0 if the row does something else."""
    if not loaded_code.cache_info().currsize or "parallel" not in vars(loaded_code()):
        return 0
    start, run_task = loaded_code().parallel
    return row[2] if row[:2] == (function_address(start), run_task) else 0


def ir_function(symbol: str, text: str) -> int:
    """Address of a function written in LLVM IR, which is compiled if it is not cached.

    Args:
        symbol: the function's name.
        text: the module.
    """
    return code_address(ir_function_name(symbol, text), functools.partial(_emitted, symbol, text))


def ir_function_name(symbol: str, text: str) -> str:
    """Name of the code of a function written in LLVM IR; arguments as for :func:`ir_function`."""
    return f"{symbol}-{short_digest(compiler_environment(), text)}"


def _emitted(symbol: str, text: str) -> tuple[str, bytes]:
    from .llvm import emit_object

    return symbol, emit_object(text)


def _built(module: str, name: str) -> tuple[str, bytes]:
    """Compile a task to its symbol and object file."""
    from .llvm import emit_object, load_openmp_symbols
    from .numba_frontend import translate

    load_openmp_symbols()
    made: Task = getattr(importlib.import_module(f"ort_sdk_cpu.{module_of(module)}"), name)
    symbol, text = translate(made.function, made.signature)
    return symbol, emit_object(text)


@functools.cache
def loaded_code() -> Code:
    """The code of this process; created when the first task is loaded."""
    return Code()


@functools.cache
def run_checked() -> int:
    """Address of the C function that runs a record's task on one thread and returns the task's first argument."""
    return ir_function("run_checked", _CHECKED)


def function_address(function: Any) -> int:
    """Address of a function that ``ctypes`` calls."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0
