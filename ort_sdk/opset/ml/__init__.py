"""Operators of the ml family."""
