"""Operators on boxes."""
