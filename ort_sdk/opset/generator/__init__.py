"""Operators of the generator family."""

from . import constant, distribution, ramp

__all__ = ["constant", "distribution", "ramp"]
