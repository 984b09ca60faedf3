"""Operators that only move elements: reshaping, slicing, transposing."""
