"""Convolutions and what follows them."""
