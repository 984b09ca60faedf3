"""Operators of the training family."""
