"""Operators of the sequence family: sequences of tensors, and optional values."""
