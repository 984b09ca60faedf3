"""Linking and mapping of object files."""
