"""Operators of the tensor family."""
