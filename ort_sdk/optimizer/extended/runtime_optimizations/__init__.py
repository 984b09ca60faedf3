"""Fusions that files in ORT format describe: recorded, and made when such a file is loaded."""
