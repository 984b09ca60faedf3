"""Operators of the activation family."""

from . import gated, linear_unit, relu, sigmoid, softmax

__all__ = ["gated", "linear_unit", "relu", "sigmoid", "softmax"]
