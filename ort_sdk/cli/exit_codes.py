"""Exit codes: what scripts may rely on."""

from __future__ import annotations

from enum import IntEnum

from ort_sdk.api import (
    InvalidArgument,
    InvalidGraph,
    InvalidOrtModel,
    InvalidProtobuf,
    NoKernelError,
    NoModel,
    NoSuchFile,
    OrtSdkError,
    ProviderError,
)

__all__ = ["ExitCode", "error_text", "exit_code_of", "exit_code_text", "is_explained"]


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NO_SUCH_FILE = 3
    PROVIDER = 4
    NO_KERNEL = 5
    NO_MODEL = 6
    INTERRUPTED = 130
    BROKEN_PIPE = 141


_MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.FAILURE: "the session or the run failed, or a check found a difference",
    ExitCode.USAGE: "wrong arguments, or an input file that does not fit the model",
    ExitCode.NO_SUCH_FILE: "a named file does not exist",
    ExitCode.PROVIDER: "a named provider is not installed or not usable here",
    ExitCode.NO_KERNEL: "no provider has a kernel for a node",
    ExitCode.NO_MODEL: "the file is no valid model",
    ExitCode.INTERRUPTED: "interrupted from the keyboard",
    ExitCode.BROKEN_PIPE: "the reader of the output went away",
}

_OF_ERRORS: tuple[tuple[type[Exception], ExitCode], ...] = (
    (FileNotFoundError, ExitCode.NO_SUCH_FILE),
    (NoSuchFile, ExitCode.NO_SUCH_FILE),
    (ProviderError, ExitCode.PROVIDER),
    (NoKernelError, ExitCode.NO_KERNEL),
    (InvalidProtobuf, ExitCode.NO_MODEL),
    (InvalidGraph, ExitCode.NO_MODEL),
    (InvalidOrtModel, ExitCode.NO_MODEL),
    (NoModel, ExitCode.NO_MODEL),
    (InvalidArgument, ExitCode.USAGE),
)


def exit_code_of(error: Exception) -> ExitCode:
    """Exit code for an exception; a failure inside a node is ``FAILURE`` whatever its class."""
    if getattr(error, "is_located", False):
        return ExitCode.FAILURE
    return next((code for kind, code in _OF_ERRORS if isinstance(error, kind)), ExitCode.FAILURE)


def is_explained(error: Exception) -> bool:
    """Whether a line says enough of an exception: it was raised on purpose, or a note says whose it is."""
    return isinstance(error, (OrtSdkError, OSError, MemoryError)) or hasattr(error, "__notes__")


def error_text(error: Exception) -> str:
    """What went wrong, and where, in a line or as many as the error's text has."""
    if isinstance(error, OrtSdkError):
        text = error.text
    elif isinstance(error, OSError) and error.filename:
        text = f"{error.strerror}: {error.filename!r}"
    else:
        text = repr(error)
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{text} ({notes})" if notes else text


def exit_code_text() -> str:
    """The table of exit codes, one line each."""
    return "\n".join(f"  {code:>3}  {_MEANINGS[code]}" for code in ExitCode)
