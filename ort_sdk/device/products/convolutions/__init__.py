"""Convolutions and transposed convolutions, and where their windows are in memory."""
