"""Resize, sampling and box suppression."""
