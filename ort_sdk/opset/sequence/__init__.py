"""Operators of the sequence family."""
