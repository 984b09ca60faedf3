"""Compiled tasks."""
