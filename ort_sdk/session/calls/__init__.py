"""Runs of a session: feeds checked and converted, values bound, results handed out."""
