"""Arguments of the compiled tasks."""
