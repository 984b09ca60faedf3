"""Code that a provider compiles when it is first needed: whether the calling thread waits for it, or does without.

The host makes and runs a session with what is compiled already (``RAISE``). Where code is missing the provider raises
``CompilationPending``; the host then computes with kernels that need no compiler (``AVOID``), while a thread of its own makes the
session anew and waits (``WAIT``). Only providers that say so (``ExecutionProvider.compiles_on_demand``) are treated like that.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable
from typing import Self

__all__ = ["CompilationContext", "CompilationPending", "CompilationPolicy", "compilation_context"]


class CompilationPolicy(enum.Enum):
    """What a thread does about code that is not compiled yet."""

    WAIT = "wait"
    """It is compiled, and the thread waits: outside of sessions, and in those that ask for it."""
    RAISE = "raise"
    """``CompilationPending`` is raised."""
    AVOID = "avoid"
    """Kernels that need compiled code are not chosen, whether or not it is there."""


class CompilationPending(BaseException):
    """Code is needed that is not compiled yet, and the thread does not wait for it.

    Its arguments tell the code from other code. No ``Exception``: it is not a failure of the node that is being made or run, and
    nothing but the host handles it.
    """


class CompilationContext:
    """Context in which the thread that enters it has a policy. To be entered once.

    Args:
        policy: what the thread does about code that is not compiled yet.
        is_cancelled: asked while the thread waits; once it is True, ``CompilationPending`` ends the waiting. None: never.
        in_background: whether compiling is less urgent than other work of the machine.
    """

    __slots__ = ("_outer", "in_background", "is_cancelled", "policy")

    def __init__(
        self,
        policy: CompilationPolicy,
        is_cancelled: Callable[[], bool] | None = None,
        *,
        in_background: bool = False,
    ) -> None:
        self.policy, self.is_cancelled, self.in_background = policy, is_cancelled, in_background

    def __enter__(self) -> Self:
        self._outer, _thread.current = _thread.current, self
        return self

    def __exit__(self, *_: object) -> None:
        _thread.current = self._outer


class _Thread(threading.local):
    """The innermost context of each thread."""

    def __init__(self) -> None:
        self.current = CompilationContext(CompilationPolicy.WAIT)


_thread = _Thread()


def compilation_context() -> CompilationContext:
    """The innermost context that the calling thread is in; outside of any, one with the policy ``WAIT``."""
    return _thread.current
