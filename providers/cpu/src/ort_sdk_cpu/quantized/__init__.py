"""Operators on 8-bit integers."""
