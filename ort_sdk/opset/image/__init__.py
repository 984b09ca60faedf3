"""Operators of the image family."""
