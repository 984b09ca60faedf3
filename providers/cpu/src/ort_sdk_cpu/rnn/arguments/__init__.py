"""Arguments of recurrent layers' compiled tasks."""
