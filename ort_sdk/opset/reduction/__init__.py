"""Operators of the reduction family."""
