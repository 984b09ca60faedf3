"""Arguments of compiled tasks."""
