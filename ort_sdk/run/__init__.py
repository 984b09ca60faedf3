"""Running a plan: step by step by ``executor``, or by a compiled program once an input signature is seen a second time.

``plan_runner`` chooses; ``program`` is the tracing compiler.
"""

from __future__ import annotations

from .executor import BodyRunner, RunControl, StepObserver, StepTimer, execute
from .plan_runner import PlanRunner, body_runner
from .program_memory import DEFAULT_LIMIT_BYTES, ProgramMemory
from .types import BindingProvider, FixedSignature, ProgramRow, Targets, signature_of

__all__ = [
    "DEFAULT_LIMIT_BYTES",
    "BindingProvider",
    "BodyRunner",
    "FixedSignature",
    "PlanRunner",
    "ProgramMemory",
    "ProgramRow",
    "RunControl",
    "StepObserver",
    "StepTimer",
    "Targets",
    "body_runner",
    "execute",
    "signature_of",
]
