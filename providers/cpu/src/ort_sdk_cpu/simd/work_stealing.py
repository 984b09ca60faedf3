"""See synchronization."""

from __future__ import annotations

from .synchronization import leave_jobs, next_job

__all__ = ["leave_jobs", "next_job"]
