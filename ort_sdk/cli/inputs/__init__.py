"""Feeds of a run: from files, or made up."""
