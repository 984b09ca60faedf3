"""Operators of the generator family."""
