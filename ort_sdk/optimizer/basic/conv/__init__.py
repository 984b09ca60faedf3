"""Convolutions, and what is folded into them."""
