"""Tasks: compiled kernels that run without numba, which takes longer to import than most models take to run.

A task is a function ``task(record, part, parts)`` in a family's folder ``compiled``, made of the operations of
``ort_sdk_cpu.simd``. ``record`` is the address of its arguments, 8 bytes each. Numba compiles it once per machine; the code is
kept in the folder of compiled kernels and mapped into memory from there. Threads are OpenMP's, which oneDNN uses, too.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import math
import re
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ort_sdk.api import ExtentError, HostArray
from ort_sdk_cpu.jit.extents.bounds import Bounds, Quick, checked_words, quick_extents
from ort_sdk_cpu.jit.extents.declaration import KEPT_SIZES, Declaration, declaration_of
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.addresses import address_of
from ort_sdk_cpu.platform.contention import expect_teams
from ort_sdk_cpu.platform.cpu_features import instruction_set, processor

from .arguments import TaskArguments
from .cache_folder import source_hash, tell_compiled
from .code_store import code_address, is_kept
from .digests import short_digest
from .native_call import ALL_BITS, NO_BITS, NativeCall, Row
from .task_modules import TASK_MODULES

__all__ = [
    "Task",
    "TaskCall",
    "TaskFunction",
    "compiler_environment",
    "entry",
    "float_word",
    "is_at_hand",
    "start_of_teams",
    "task",
    "task_address",
    "task_function",
    "team_record",
]

WORD = 8

_PACKAGE = Path(__file__).parents[1]
_IMPORTED = re.compile(rb"^from (?:\.(\w+)|ort_sdk_cpu\.([\w.]+\.(?:arguments|compiled)\.\w+)) import", re.MULTILINE)

_ENTRIES = """
{declared}
define void @run_part(ptr %record) {{
  %places = alloca [2 x ptr]
  %code = load ptr, ptr %record
  %arguments = getelementptr i8, ptr %record, i64 8
  %address = ptrtoint ptr %arguments to i64
  %second = getelementptr [2 x ptr], ptr %places, i64 0, i64 1
  {threads}
  %status = call i32 %code(ptr %places, ptr %second, i64 %address, i64 %part, i64 %parts)
  ret void
}}
"""
"""Numba's functions take two places of its own before their arguments. The first word of a record is the code's address."""

_CHECKED = """
define i32 @run_checked(ptr %record) {
  %places = alloca [2 x ptr]
  %code = load ptr, ptr %record
  %arguments = getelementptr i8, ptr %record, i64 8
  %address = ptrtoint ptr %arguments to i64
  %second = getelementptr [2 x ptr], ptr %places, i64 0, i64 1
  %status = call i32 %code(ptr %places, ptr %second, i64 %address, i64 0, i64 1)
  %failed = load i64, ptr %arguments
  %narrow = trunc i64 %failed to i32
  ret i32 %narrow
}
"""
"""For tasks whose first argument tells afterwards whether they failed."""

_ONE_THREAD = _ENTRIES.format(declared="", threads="%part = add i64 0, 0\n%parts = add i64 0, 1")
_OF_A_TEAM = _ENTRIES.format(
    declared="declare i32 @omp_get_thread_num()\ndeclare i32 @omp_get_num_threads()",
    threads="""%number = call i32 @omp_get_thread_num()
  %count = call i32 @omp_get_num_threads()
  %part = sext i32 %number to i64
  %parts = sext i32 %count to i64""",
)


class Task:
    """A task's source.

    Args:
        function: ``function(args, part, parts)``, whose first parameter is annotated with the class of its arguments.
    """

    def __init__(self, function: Callable[[Any, int, int], None]) -> None:
        self.function = function
        self.name = function.__name__

    @property
    def signature(self) -> Any:
        """Numba's."""
        from .argument_types import task_signature

        first = self.function.__code__.co_varnames[0]
        annotation = self.function.__annotations__[first]
        if annotation == "int":
            return "void(intp, intp, intp)"
        return task_signature(annotation if isinstance(annotation, type) else self.function.__globals__[annotation])


def task(function: Callable[[Any, int, int], None]) -> Task:
    """Decorator of tasks."""
    return Task(function)


def module_of(name: str) -> str:
    """Where the tasks of a module's short name are, below ``ort_sdk_cpu``."""
    family, dot, own = name.rpartition(".")
    return f"{family}.compiled.{own}" if dot else TASK_MODULES[name]


@functools.cache
def compiler_environment() -> str:
    """Processor, instruction set and compiler that code is made for and by."""
    return f"{processor()} {instruction_set()} numba {libraries.numba().version} llvmlite {libraries.version_of('llvmlite')}"


class _Code:
    """Machine code in this process."""

    def __init__(self) -> None:
        self._addresses: dict[tuple[str, str], int] = {}
        self.alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(entry("run_part", _ONE_THREAD))
        """Runs a record's task on this thread."""

    @functools.cached_property
    def team(self) -> tuple[Callable[[int, int, int, int], None], int]:
        """OpenMP's entry to run a function on several threads, and the function that runs a record's task."""
        return start_of_teams(), entry("run_part", _OF_A_TEAM)

    def address(self, module: str, name: str) -> int:
        """Where a task's code is; compiled if it is not in the folder."""
        found = self._addresses.get((module, name))
        if found is None:
            found = code_address(_file_name(module, name), functools.partial(_built, module, name))
            self._addresses[module, name] = found
        return found


def is_at_hand(module: str, name: str) -> bool:
    """Whether a task costs little to have: this process runs compiled kernels anyway, or the task is in the folder."""
    return bool(_code.cache_info().currsize) or is_kept(_file_name(module, name))


def _file_name(module: str, name: str) -> str:
    return f"{module}-{name}-{short_digest(source_hash(), compiler_environment(), name, *_sources(module_of(module)))}"


def _sources(module: str) -> Iterator[bytes]:
    """Sources that a module's tasks are made of: its own, and those of the compiled modules and arguments that it imports."""
    source = (_PACKAGE / f"{module.replace('.', '/')}.py").read_bytes()
    yield source
    for sibling, other in _IMPORTED.findall(source):
        yield from _sources(other.decode() or f"{module.rpartition('.')[0]}.{sibling.decode()}")


@functools.cache
def start_of_teams() -> Callable[[int, int, int, int], None]:
    """OpenMP's entry to run a function on several threads: ``start(function, its argument, threads, 0)``, all of them numbers."""
    expect_teams()
    run = ctypes.CDLL(libraries.OPENMP_FILE).GOMP_parallel
    run.argtypes, run.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint], None
    return run


def task_address(module: str, name: str) -> int:
    """Where a task's code is; compiled if it is not in the folder."""
    return _code().address(module, name)


def team_record(row: Row) -> int:
    """Address of the record of a task for a team of threads that a row calls; 0 if it calls something else."""
    if not _code.cache_info().currsize or "team" not in vars(_code()):
        return 0
    start, of_a_team = _code().team
    return row[2] if row[:2] == (_address(start), of_a_team) else 0


def entry(symbol: str, text: str) -> int:
    """Address of a function in LLVM's language."""
    return code_address(f"{symbol}-{short_digest(compiler_environment(), text)}", lambda: (symbol, _emitted(text)))


def _emitted(text: str) -> bytes:
    from .llvm import emitted

    return emitted(text)


def _built(module: str, name: str) -> tuple[str, bytes]:
    """Symbol and object file of a task."""
    from .llvm import emitted, know_openmp
    from .numba_frontend import translated

    start = time.perf_counter()
    know_openmp()
    made: Task = getattr(importlib.import_module(f"ort_sdk_cpu.{module_of(module)}"), name)
    symbol, text = translated(made.function, made.signature)
    code = emitted(text)
    tell_compiled(name, time.perf_counter() - start)
    return symbol, code


@functools.cache
def _code() -> _Code:
    return _Code()


_pack_float, _unpack_word = struct.Struct("=f4x").pack, struct.Struct("=q").unpack


def float_word(number: float) -> int:
    """A float32 as the first half of a word; infinite where it is too large for one."""
    try:
        word: int = _unpack_word(_pack_float(number))[0]
    except OverflowError:
        return float_word(math.copysign(math.inf, number))
    return word


def _word_of_kind(kind: str, argument: Any) -> int:
    """Of a record, for a value of a field."""
    return float_word(float(argument)) if kind == "f" else _word(argument)


def _word(argument: Any) -> int:
    """Of a record, for an argument."""
    if isinstance(argument, float):
        return float_word(argument)
    if isinstance(argument, np.ndarray):
        return address_of(argument)
    return 0 if argument is None else argument


def _address(function: Any) -> int:
    """Of a function that ``ctypes`` calls."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


class TaskCall:
    """A task with its arguments. For one thread at a time.

    What the task touches with them is checked before it is started, or given away to be: see ``extents``.

    Args:
        module: name of the task's module, of ``TASK_MODULES``.
        name: the task's.
        arguments: of the task: arrays (None for none) for addresses, 0 for those pointed later. Arrays are not kept alive.
        threads: how many it may use; fewer than that where there is no OpenMP.
    """

    def __init__(self, module: str, name: str, arguments: TaskArguments | Sequence[Any], threads: int = 1) -> None:
        self._fill(_code().address(module, name), arguments, threads, declaration_of(module, name))

    @classmethod
    def at(cls, address: int, arguments: Sequence[Any], threads: int = 1, declaration: Declaration | None = None) -> TaskCall:
        """The same for code at an address, and what it declares."""
        made = cls.__new__(cls)
        made._fill(address, arguments, threads, declaration)
        return made

    def _fill(
        self, address: int, arguments: TaskArguments | Sequence[Any], threads: int, declaration: Declaration | None
    ) -> None:
        code = _code()
        if isinstance(arguments, TaskArguments):
            kinds = arguments.kinds
            words = map(_word_of_kind, kinds, arguments.words) if kinds else map(_word, arguments.words)
            arguments = arguments.words
        else:
            words = map(_word, arguments)
        self._record = np.array([address, *words], np.int64)
        self._threads = threads if libraries.has_openmp() else 1
        record = address_of(self._record)
        self._start: Callable[[], Any] = functools.partial(code.alone, record)
        if self._threads > 1:
            start, of_a_team = code.team
            self._start = functools.partial(start, of_a_team, record, threads, 0)
        # In TaskCall(...).run() the object may end before the call begins: the arguments' memory has to outlive it.
        self._start.__dict__["record"] = self._record
        self._bounds = None if declaration is None else Bounds(declaration, list(arguments), self._threads)
        if self._bounds is not None:
            for position, argument in enumerate(arguments):
                if isinstance(argument, np.ndarray):
                    self._bounds.point(position, argument)

    @property
    def run(self) -> Callable[[], Any]:
        """Does the work; returns when it is done."""
        return self._start if self._bounds is None or self._bounds.is_checked else self._check_and_start

    def _check_and_start(self) -> None:
        self.check()
        self._start()

    def check(self, *, may_lack_some: bool = False) -> None:
        """Check all arrays against what the task touches.

        Args:
            may_lack_some: whether addresses that are 0 are pointed at later.

        Raises:
            ExtentError: it would reach outside of one.
        """
        if self._bounds is not None:
            self._bounds.check(self._record[1:].tolist(), may_lack_some=may_lack_some)

    @property
    def row(self) -> Row:
        """The work for callers that need no Python."""
        self.check(may_lack_some=True)
        return self._row()

    def _row(self) -> Row:
        code, record = _code(), address_of(self._record)
        if self._threads == 1:
            return (_address(code.alone), record, 0, 0, 0, NO_BITS)
        start, of_a_team = code.team
        return (_address(start), of_a_team, record, self._threads, 0, NO_BITS)

    def point(self, position: int, array: HostArray | None, offset: int = 0) -> None:
        """Use an array's memory, so many bytes on, for an argument, 0 for None; it is not kept alive.

        Raises:
            ExtentError: the task was checked, and would reach outside of this array.
        """
        if self._bounds is not None:
            self._bounds.point(position, array, offset)
        self._record[1 + position] = 0 if array is None else address_of(array) + offset

    def aim(self, position: int, address: int, nbytes: int) -> None:
        """Use memory of so many bytes for an argument.

        Raises:
            ExtentError: the task was checked, and would reach outside of it.
        """
        if self._bounds is not None:
            self._bounds.tell(position, (0, nbytes, True))
        self._record[1 + position] = address

    def set(self, position: int, value: int) -> None:
        """Change an integer argument that is no address."""
        if self._bounds is not None:
            if self._bounds.is_address(position):
                raise ExtentError(f"Argument {position} of a compiled task is an address; its memory has to be given with it.")
            self._bounds.change(position, value)
        self._record[1 + position] = value

    def clear(self) -> None:
        """Make the first argument of a task that sets it where it fails 0."""
        self._record[1] = 0

    def kept(self, *arrays: Any) -> Callable[[], Any]:
        """The work on arrays that were pointed at and stay; the call keeps them, and this object."""
        self.check()
        call = functools.partial(self._start)
        call.kept = (self, arrays)  # type: ignore[attr-defined]
        call.native = NativeCall((self._row(),))  # type: ignore[attr-defined]
        return call

    def checked(self, fail: Callable[[], Any], *arrays: Any) -> Callable[[], Any]:
        """The same for a task that sets its first argument where it fails; then ``fail`` does the work, or raises the error."""
        self.check()
        record, run = self._record, self._start

        def call() -> None:
            run()
            if record[1]:
                fail()

        call.kept = (self, arrays)  # type: ignore[attr-defined]
        call.native = NativeCall((self._checked_row(),))  # type: ignore[attr-defined]
        return call

    @property
    def checked_row(self) -> Row:
        """As ``row``, for a task of one thread that sets its first argument where it fails."""
        self.check(may_lack_some=True)
        return self._checked_row()

    def _checked_row(self) -> Row:
        return (entry("run_checked", _CHECKED), address_of(self._record), 0, 0, 0, ALL_BITS)

    @property
    def has_failed(self) -> bool:
        """Whether such a task failed."""
        return bool(self._record[1])

    def words(self) -> Iterator[tuple[int, int]]:
        """Position and word of each argument."""
        return enumerate(self._record[1:].tolist())


class TaskFunction:
    """A task that is called with other arguments each time. For any number of threads at once.

    Args:
        module: name of the task's module, of ``TASK_MODULES``.
        name: the task's.
        kinds: ``q`` for each argument that is an address or size, ``f`` for each float32, in the task's order; empty for those
            of the task's class of arguments.
    """

    def __init__(self, module: str, name: str, kinds: str = "") -> None:
        declaration = declaration_of(module, name)
        if not kinds and declaration is not None:
            kinds = declaration.kinds
        self._fill(_code().address(module, name), kinds, declaration)

    @classmethod
    def at(cls, address: int, kinds: str, declaration: Declaration | None = None) -> TaskFunction:
        """The same for code at an address, and what it declares."""
        made = cls.__new__(cls)
        made._fill(address, kinds, declaration)
        return made

    def _fill(self, address: int, kinds: str, declaration: Declaration | None) -> None:
        self._pack = struct.Struct("=q" + kinds.replace("f", "f4x")).pack
        self._address, self._alone = address, _code().alone
        self._declaration = declaration
        if declaration is not None:
            self._key_of = declaration.key_of(len(kinds))
            self._extents: dict[Any, Quick] = {}

    def __call__(self, threads: int, *arguments: Any) -> None:
        """Do the work; returns when it is done.

        Args:
            threads: how many it may use; fewer than that where there is no OpenMP.
            arguments: of the task: an instance of its class of arguments, with arrays for addresses (None for none).

        Raises:
            ExtentError: the task would reach outside of an array.
        """
        if len(arguments) == 1 and isinstance(arguments[0], TaskArguments):
            arguments = arguments[0].words  # type: ignore[assignment]
        words: Sequence[Any] = arguments
        if self._declaration is not None:
            key = (threads, self._key_of(arguments))
            extents = self._extents.get(key) or self._made(self._declaration, key, threads, arguments)
            words = checked_words(self._declaration, extents, arguments)
        # The record is read through the address of the bytes, which stay alive until the call returns. Tasks may count in it:
        # nobody else sees these bytes.
        record = self._pack(self._address, *words)
        if threads > 1 and libraries.has_openmp():
            start, of_a_team = _code().team
            start(of_a_team, record, threads, 0)  # type: ignore[arg-type]
        else:
            self._alone(record)

    def _made(self, declaration: Declaration, key: Any, threads: int, arguments: Sequence[Any]) -> Quick:
        """What is touched with some sizes, which is kept."""
        if len(self._extents) >= KEPT_SIZES:
            self._extents.clear()
        found = self._extents[key] = quick_extents(declaration, arguments, threads)
        return found


@functools.cache
def task_function(module: str, name: str, kinds: str = "") -> TaskFunction:
    """The one function of a task, made when it is first asked for; arguments as for ``TaskFunction``."""
    return TaskFunction(module, name, kinds)
