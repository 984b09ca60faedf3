"""Copies, Gather, Scatter, Pad."""
