"""GEMMs of 8-bit integers."""
