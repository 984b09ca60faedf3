"""Activations, and what they are fused into."""
