"""The execution plan: what a run does, as data."""

from __future__ import annotations

from .execution_plan import ABSENT, Constants, ExecutionPlan, Feed, Fetch, Step
from .make_plan import NodeKernel, make_plan

__all__ = ["ABSENT", "Constants", "ExecutionPlan", "Feed", "Fetch", "NodeKernel", "Step", "make_plan"]
