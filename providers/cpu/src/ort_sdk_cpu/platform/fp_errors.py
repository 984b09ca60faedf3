"""Turns NumPy's floating-point warnings off during a run: infinities and NaNs are valid results of ONNX's operators.

``numpy.errstate`` creates an object of its settings each time, which takes longer than a step of a small model. Since version 2.0
NumPy keeps the settings in a context variable, so that an object that is created once can be set there.
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
"""``token = ignore_errors()`` turns all warnings off, ``restore_errors(token)`` restores the settings before."""


class IgnoredErrors:
    """Context in which floating-point errors are ignored."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = ignore_errors()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        restore_errors(self._before)
