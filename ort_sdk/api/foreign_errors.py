"""What others raise (plugins, kernels, the system) as errors of this package, each with the original as its cause.

An error made here is of one of the package's classes and of the builtin class that was raised, so that ``except OSError`` goes
on to catch what it caught. Running out of memory is always ``OutOfMemory``.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

from .errors import EPFail, Fail, InvalidArgument, NoSuchFile, NotImplemented, OrtSdkError, OutOfMemory
from .released_frames import release_frames

__all__ = ["foreign_class", "is_public", "only_ort_errors", "ort_error", "public_class", "raise_foreign", "restated"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_C = TypeVar("_C", bound=type)

_BUILTINS = frozenset(
    {
        *(ArithmeticError, OverflowError, ZeroDivisionError, FloatingPointError, AssertionError, AttributeError, BufferError),
        *(EOFError, ImportError, ModuleNotFoundError, LookupError, IndexError, KeyError, NotImplementedError, RuntimeError),
        *(RecursionError, TypeError, ValueError, OSError, BlockingIOError, ChildProcessError, ConnectionError, BrokenPipeError),
        *(FileExistsError, FileNotFoundError, InterruptedError, IsADirectoryError, NotADirectoryError, PermissionError),
        *(ProcessLookupError, TimeoutError),
    }
)
_OF_THE_HOST: tuple[tuple[type[Exception], type[OrtSdkError]], ...] = (
    (FileNotFoundError, NoSuchFile),
    (NotImplementedError, NotImplemented),
    (ValueError, InvalidArgument),
    (OverflowError, InvalidArgument),
)
"""Builtin → class for what the host's own code raises, or the system when the host asks it."""


def foreign_class(error: BaseException, kind: type[OrtSdkError]) -> type[OrtSdkError]:
    """The class to raise for an exception: ``kind``, and the builtin that the exception is, too."""
    if isinstance(error, MemoryError):
        return OutOfMemory
    builtin = next((base for base in type(error).__mro__ if base in _BUILTINS), None)
    return kind if builtin is None or issubclass(kind, builtin) else _both(kind, builtin)


def ort_error(error: BaseException, where: str = "", kind: type[OrtSdkError] | None = None) -> OrtSdkError:
    """An error of this package for an exception that is none; the caller raises it from that one.

    Args:
        error: what was raised.
        where: whose code raised it, and what for.
        kind: class of the error; by default chosen by the exception's own.
    """
    if kind is None:
        kind = next((ours for builtin, ours in _OF_THE_HOST if isinstance(error, builtin)), Fail)
    return restated(error, kind, f"{error!r} ({where})" if where else f"{type(error).__name__}: {error}")


def restated(error: BaseException, kind: type[OrtSdkError], text: str) -> OrtSdkError:
    """An error of this package, with a text of its own, for an exception that is none; the caller raises it from that one."""
    made = foreign_class(error, kind)(text)
    if isinstance(error, OSError) and isinstance(made, OSError):
        made.errno, made.strerror, made.filename = error.errno, error.strerror, error.filename
    return made


def raise_foreign(error: Exception, where: str, kind: type[OrtSdkError] = EPFail) -> NoReturn:
    """Raise what somebody else's code raised as an error of this package; one that is of it already gets a note.

    Args:
        error: what was raised.
        where: whose code raised it, and what for.
        kind: class of the error.
    """
    try:
        if isinstance(error, OrtSdkError):
            error.add_note(where)
            raise error
        raise ort_error(error, where, kind) from error
    finally:
        del error  # or the traceback would keep this frame, and this frame the traceback


def only_ort_errors(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Decorator of functions of the public interface: what leaves them is an ``OrtSdkError`` that keeps none of their variables.

    ``TypeError`` stays what it is: it is Python's own for arguments that a function does not take, as in ONNX Runtime's bindings.
    """

    @functools.wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            release_frames(error)
            del args, kwargs
            if is_public(error):
                raise
            raise ort_error(error) from error

    return checked


def is_public(error: BaseException) -> bool:
    """Whether an error may leave the public interface as it is."""
    return isinstance(error, (OrtSdkError, TypeError)) or not isinstance(error, Exception)


def public_class(*, but: tuple[str, ...] = ()) -> Callable[[_C], _C]:
    """Decorator of public classes: ``only_ort_errors`` for each public method and property.

    Args:
        but: methods that cannot fail, or see to it themselves, and are called often.
    """

    def decorated(cls: _C) -> _C:
        for name, member in list(vars(cls).items()):
            if name not in but and (name == "__init__" or not name.startswith("_")):
                guarded = _guarded(member)
                if guarded is not member:
                    setattr(cls, name, guarded)
        return cls

    return decorated


def _guarded(member: Any) -> Any:
    if isinstance(member, types.FunctionType):
        return only_ort_errors(member)
    if isinstance(member, (staticmethod, classmethod)):
        return type(member)(only_ort_errors(member.__func__))
    if isinstance(member, property) and member.fget is not None:
        return property(only_ort_errors(member.fget), member.fset, member.fdel, member.__doc__)
    return member


@functools.cache
def _both(kind: type[OrtSdkError], builtin: type[Exception]) -> type[OrtSdkError]:
    """A class that is two; it is shown as the first, and unpickled as that."""

    def reduce(self: OrtSdkError) -> tuple[type[OrtSdkError], tuple[str]]:
        return kind, (self.text,)

    members = {"__reduce__": reduce, "__doc__": kind.__doc__, "__module__": kind.__module__}
    return type(kind.__name__, (kind, builtin), members)
