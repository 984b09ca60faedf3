"""Calls of tasks from Python: with arguments that stay (``TaskCall``), or differ in each call (``TaskFunction``)."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import ExtentError, HostArray, RuntimeException
from ort_sdk_cpu.jit.extents.bounds import Bounds, ExtentChecks, checked_words, extent_checks
from ort_sdk_cpu.jit.extents.declaration import KEPT_SIZES, Declaration, arguments_module, declaration_of
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.addresses import address_of

from .arguments import TaskArguments
from .native_call import CHECK_STATUS, IGNORE_STATUS, CallRow, NativeCall
from .task_code import (
    function_address,
    loaded_code,
    run_checked,
)

__all__ = ["TaskCall", "TaskFunction", "float_word", "task_function"]

_pack_float, _unpack_word = struct.Struct("=f4x").pack, struct.Struct("=q").unpack


def float_word(number: float) -> int:
    """A float32 in the low 4 bytes of a word; infinity if the number is too large for float32."""
    try:
        word: int = _unpack_word(_pack_float(number))[0]
    except OverflowError:
        return float_word(math.copysign(math.inf, number))
    return word


def _word_of_kind(kind: str, argument: Any) -> int:
    """The word of a record for an argument whose kind is declared."""
    return float_word(float(argument)) if kind == "f" else _word(argument)


def _word(argument: Any) -> int:
    """The word of a record for an argument."""
    if isinstance(argument, float):
        return float_word(argument)
    if isinstance(argument, np.ndarray):
        return address_of(argument)
    return 0 if argument is None else argument


class TaskCall:
    """A task with its arguments. For one thread at a time.

    The memory that the task accesses is checked against its extents before it runs, or before others may run it.

    Args:
        module: name of the task's module, ``<family>.<name>``.
        name: name of the task.
        arguments: of the task: arrays (None for none) for addresses, 0 for those pointed later. Arrays are not kept alive.
        threads: how many it may use; it uses one where there is no OpenMP.
    """

    def __init__(self, module: str, name: str, arguments: TaskArguments | Sequence[Any], threads: int = 1) -> None:
        self._fill(loaded_code().address(module, name), arguments, threads, declaration_of(module, name))

    @classmethod
    def at(cls, address: int, arguments: Sequence[Any], threads: int = 1, declaration: Declaration | None = None) -> TaskCall:
        """A call of code at an address, with its declaration; None for one without checks."""
        made = cls.__new__(cls)
        made._fill(address, arguments, threads, declaration)
        return made

    def _fill(
        self, address: int, arguments: TaskArguments | Sequence[Any], threads: int, declaration: Declaration | None
    ) -> None:
        if isinstance(arguments, TaskArguments):
            words = map(_word_of_kind, arguments.kinds, arguments.words)
            arguments = arguments.words
        else:
            words = map(_word, arguments)
        self._record = np.array([address, *words], np.int64)
        self._threads = threads if libraries.has_openmp() else 1
        record = address_of(self._record)
        self._start: Callable[[], Any] = functools.partial(loaded_code().serial, record)
        if self._threads > 1:
            start, run_task = loaded_code().parallel
            self._start = functools.partial(start, run_task, record, threads, 0)
        # In TaskCall(...).run() the object may be freed before the call begins: the record's memory has to outlive it.
        self._start.__dict__["record"] = self._record
        self._bounds = None if declaration is None else Bounds(declaration, list(arguments), self._threads)
        if self._bounds is not None:
            for position, argument in enumerate(arguments):
                if isinstance(argument, np.ndarray):
                    self._bounds.point(position, argument)

    @property
    def run(self) -> Callable[[], Any]:
        """A call that runs the task; returns when it is done."""
        return self._start if self._bounds is None or self._bounds.is_checked else self._check_and_start

    def _check_and_start(self) -> None:
        self.check()
        self._start()

    def check(self, *, may_lack_some: bool = False) -> None:
        """Check all arrays against the task's extents.

        Args:
            may_lack_some: whether addresses that are 0 are pointed later.

        Raises:
            ExtentError: the task would access memory outside of an array.
        """
        if self._bounds is not None:
            self._bounds.check(self._record[1:].tolist(), may_lack_some=may_lack_some)

    @property
    def row(self) -> CallRow:
        """The call as a C function call.

        Raises:
            ExtentError: the task would access memory outside of an array.
        """
        self.check(may_lack_some=True)
        return self._row()

    def _row(self) -> CallRow:
        record = address_of(self._record)
        if self._threads == 1:
            return (function_address(loaded_code().serial), record, 0, 0, 0, IGNORE_STATUS)
        start, run_task = loaded_code().parallel
        return (function_address(start), run_task, record, self._threads, 0, IGNORE_STATUS)

    def point(self, position: int, array: HostArray | None, offset: int = 0) -> None:
        """Point an address at an array, which is not kept alive.

        Args:
            position: of the argument.
            array: the array; None for an address of 0.
            offset: bytes from the array's first element.

        Raises:
            ExtentError: the task was checked, and would access memory outside of this array.
        """
        if self._bounds is not None:
            self._bounds.point(position, array, offset)
        self._record[1 + position] = 0 if array is None else address_of(array) + offset

    def set(self, position: int, value: int) -> None:
        """Change an integer argument that is not an address.

        Raises:
            ExtentError: the argument is an address.
        """
        if self._bounds is not None:
            if self._bounds.is_address(position):
                raise ExtentError(
                    f"Argument {position} of a compiled task is an address and was set to {value}; point it at an array instead."
                )
            self._bounds.change(position, value)
        self._record[1 + position] = value

    def clear(self) -> None:
        """Set the first argument to 0, of a task that sets it if it fails."""
        self._record[1] = 0

    def bound_call(self, *arrays: Any) -> Callable[[], Any]:
        """The run as a call without arguments, which is native, and keeps this object and the arrays alive.

        Args:
            arrays: those that the task was pointed at.

        Raises:
            ExtentError: the task would access memory outside of an array.
        """
        self.check()
        call = functools.partial(self._start)
        call.keeps_alive = (self, arrays)  # type: ignore[attr-defined]
        call.native = NativeCall((self._row(),))  # type: ignore[attr-defined]
        return call

    def checked_call(self, fail: Callable[[], Any], *arrays: Any) -> Callable[[], Any]:
        """As ``bound_call``, for a task that sets its first argument if it fails.

        Args:
            fail: called then, to compute the result in another way or to raise the error.
            arrays: those that the task was pointed at.

        Raises:
            ExtentError: the task would access memory outside of an array.
        """
        self.check()
        record, run = self._record, self._start

        def call() -> None:
            run()
            if record[1]:
                fail()

        call.keeps_alive = (self, arrays)  # type: ignore[attr-defined]
        call.native = NativeCall((self._checked_row(),))  # type: ignore[attr-defined]
        return call

    @property
    def checked_row(self) -> CallRow:
        """As ``row``, for a task of one thread that sets its first argument if it fails."""
        self.check(may_lack_some=True)
        return self._checked_row()

    def _checked_row(self) -> CallRow:
        return (run_checked(), address_of(self._record), 0, 0, 0, CHECK_STATUS)

    @property
    def has_failed(self) -> bool:
        """Whether the task set its first argument."""
        return bool(self._record[1])

    def words(self) -> Iterator[tuple[int, int]]:
        """Position and word of each argument, in order."""
        return enumerate(self._record[1:].tolist())


class TaskFunction:
    """A task that is called with different arguments each time. Thread-safe.

    Args:
        module: name of the task's module, ``<family>.<name>``.
        name: name of the task.

    Raises:
        RuntimeException: no class of arguments names the task.
    """

    def __init__(self, module: str, name: str) -> None:
        declaration = declaration_of(module, name)
        if declaration is None:
            raise RuntimeException(
                f"no class of arguments in ort_sdk_cpu.{arguments_module(module)} names the compiled task {name!r}; "
                "add it to the class's argument 'tasks'"
            )
        self._fill(loaded_code().address(module, name), declaration.kinds, declaration)

    @classmethod
    def at(cls, address: int, kinds: str, declaration: Declaration | None = None) -> TaskFunction:
        """A function of code at an address.

        Args:
            address: of the code.
            kinds: ``q`` for each argument that is an address or integer, ``f`` for each float32, in the task's order.
            declaration: of its extents; None for no checks.
        """
        made = cls.__new__(cls)
        made._fill(address, kinds, declaration)
        return made

    def _fill(self, address: int, kinds: str, declaration: Declaration | None) -> None:
        self._pack = struct.Struct("=q" + kinds.replace("f", "f4x")).pack
        self._address, self._serial = address, loaded_code().serial
        self._declaration = declaration
        if declaration is not None:
            self._key_of = declaration.key_of(len(kinds))
            self._extents: dict[Any, ExtentChecks] = {}

    def __call__(self, threads: int, *arguments: Any) -> None:
        """Run the task; returns when it is done.

        Args:
            threads: how many it may use; it uses one where there is no OpenMP.
            arguments: of the task: an instance of its class of arguments, with arrays for addresses (None for none).

        Raises:
            ExtentError: the task would access memory outside of an array.
        """
        if len(arguments) == 1 and isinstance(arguments[0], TaskArguments):
            arguments = arguments[0].words  # type: ignore[assignment]
        words: Sequence[Any] = arguments
        if self._declaration is not None:
            key = (threads, self._key_of(arguments))
            extents = self._extents.get(key) or self._made(self._declaration, key, threads, arguments)
            words = checked_words(self._declaration, extents, arguments)
        # The record is passed by the address of the bytes object, which lives until the call returns. Tasks may write to its
        # counters: no other object shares these bytes.
        record = self._pack(self._address, *words)
        if threads > 1 and libraries.has_openmp():
            start, run_task = loaded_code().parallel
            start(run_task, record, threads, 0)  # type: ignore[arg-type]
        else:
            self._serial(record)

    def _made(self, declaration: Declaration, key: Any, threads: int, arguments: Sequence[Any]) -> ExtentChecks:
        """The extents for the sizes among some arguments, computed and kept."""
        if len(self._extents) >= KEPT_SIZES:
            self._extents.clear()
        found = self._extents[key] = extent_checks(declaration, arguments, threads)
        return found


@functools.cache
def task_function(module: str, name: str) -> TaskFunction:
    """The function of a task, created once per process; arguments and errors as for ``TaskFunction``."""
    return TaskFunction(module, name)
