"""See memory and arithmetic."""

from __future__ import annotations

from .arithmetic import first_lanes, select_less
from .memory import load_f32_first_or, load_f32_steps

__all__ = ["first_lanes", "load_f32_first_or", "load_f32_steps", "select_less"]
