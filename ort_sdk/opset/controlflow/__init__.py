"""Operators of the controlflow family."""
