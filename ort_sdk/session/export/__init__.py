"""Writing the optimized model."""
