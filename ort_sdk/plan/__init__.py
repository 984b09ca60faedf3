"""The execution plan: what a run does, as data."""

from __future__ import annotations

from .execution_plan import ABSENT, ExecutionPlan, Feed, Fetch, Step
from .make_plan import NodeKernel, make_plan

__all__ = ["ABSENT", "ExecutionPlan", "Feed", "Fetch", "NodeKernel", "Step", "make_plan"]
