"""Convolutions of 8-bit integers."""
