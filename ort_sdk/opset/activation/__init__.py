"""Operators of the activation family."""
