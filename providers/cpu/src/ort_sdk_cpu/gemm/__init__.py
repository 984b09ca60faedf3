"""Matrix products of float32, float16 and packed integers."""
