"""NumPy's warnings about infinities and NaNs, which are values of ONNX's operators: they stay off during a run.

``numpy.errstate`` makes an object of its settings each time, which takes longer than a small model's step. Where NumPy keeps the
settings in a context variable, as it does since 2.0, an object that is made once is put there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

__all__ = ["IgnoredErrors", "ignore_errors", "restore_errors"]


def _ignore() -> Any:
    errors = np.errstate(all="ignore")
    errors.__enter__()
    return errors


def _restore(before: Any) -> None:
    before.__exit__(None, None, None)


def _functions() -> tuple[Callable[[], Any], Callable[[Any], None]]:
    try:
        from numpy._core.umath import _extobj_contextvar, _make_extobj
    except ImportError:
        return _ignore, _restore
    return functools.partial(_extobj_contextvar.set, _make_extobj(all="ignore")), _extobj_contextvar.reset


ignore_errors, restore_errors = _functions()
"""Ignore all errors, which gives what the other takes to do again as before."""


class IgnoredErrors:
    """Context in which they are ignored."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = ignore_errors()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        restore_errors(self._before)
