"""Convolutions by oneDNN's primitives."""
