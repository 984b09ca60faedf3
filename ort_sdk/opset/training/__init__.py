"""Operators of the training family: one iteration of an optimizer."""
