"""Recurrent layers with a launch for each step."""
