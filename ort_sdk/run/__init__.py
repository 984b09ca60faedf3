"""Running a plan."""

from __future__ import annotations

from .binding import BindingProvider
from .executor import BodyRunner, RunControl, StepObserver, execute
from .plan_runner import PlanRunner, ProgramRow, body_runner

__all__ = ["BindingProvider", "BodyRunner", "PlanRunner", "ProgramRow", "RunControl", "StepObserver", "body_runner", "execute"]
