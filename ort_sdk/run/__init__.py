"""Running a plan."""

from __future__ import annotations

from .executor import BodyRunner, RunControl, StepObserver, execute
from .plan_runner import BindingProvider, PlanRunner, ProgramRow, body_runner
from .program_memory import DEFAULT_LIMIT_BYTES, ProgramMemory

__all__ = [
    "DEFAULT_LIMIT_BYTES",
    "BindingProvider",
    "BodyRunner",
    "PlanRunner",
    "ProgramMemory",
    "ProgramRow",
    "RunControl",
    "StepObserver",
    "body_runner",
    "execute",
]
