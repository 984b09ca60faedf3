"""Operators of the training family: one iteration of an optimizer."""

from . import optimizers

__all__ = ["optimizers"]
