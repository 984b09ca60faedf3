"""Operators of the contrib family."""
