"""Element-wise operators and casts."""
