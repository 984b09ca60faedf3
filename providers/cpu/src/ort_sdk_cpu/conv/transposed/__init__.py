"""Transposed convolutions by compiled tasks."""
