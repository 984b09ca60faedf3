"""The CPU execution provider of ort_sdk: the shared operator set over NumPy."""
