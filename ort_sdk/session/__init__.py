"""Sessions: the only folder that knows the order of the stages."""
