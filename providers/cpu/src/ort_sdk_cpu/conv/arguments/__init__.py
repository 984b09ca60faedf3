"""Arguments of the convolutions' compiled tasks."""
