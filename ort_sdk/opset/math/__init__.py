"""Operators of the math family."""
