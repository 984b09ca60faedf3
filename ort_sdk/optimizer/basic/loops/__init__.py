"""Loops: values that do not change in them."""
