"""Recurrent layers: all steps of a sequence in one kernel."""
