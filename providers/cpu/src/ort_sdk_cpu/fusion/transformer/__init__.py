"""Layers of transformers."""
