"""Running a plan."""

from __future__ import annotations

from .executor import BodyRunner, RunControl, execute

__all__ = ["BodyRunner", "RunControl", "execute"]
