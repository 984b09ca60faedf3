"""Arguments of attention's compiled tasks."""
