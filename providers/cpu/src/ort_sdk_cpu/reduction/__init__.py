"""Reductions, ArgMax and TopK."""
