"""Recurrent layers: all steps of a sequence in one kernel, or a launch for each step."""
