"""Attention, with and without a cache of keys and values."""
