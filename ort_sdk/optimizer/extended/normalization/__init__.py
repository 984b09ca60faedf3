"""Layer normalization, with what is before it."""
