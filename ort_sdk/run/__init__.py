"""Running a plan."""

from __future__ import annotations

from .executor import BodyRunner, RunControl, StepObserver, execute
from .plan_runner import BindingProvider, PlanRunner, ProgramRow, body_runner

__all__ = ["BindingProvider", "BodyRunner", "PlanRunner", "ProgramRow", "RunControl", "StepObserver", "body_runner", "execute"]
