"""Operators of the nn family."""
