"""See synchronization."""

from __future__ import annotations

from .synchronization import barrier, count_arrival

__all__ = ["barrier", "count_arrival"]
