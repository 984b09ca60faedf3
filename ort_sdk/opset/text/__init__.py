"""Operators of the text family."""
