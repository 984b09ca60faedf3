"""Chains of element-wise operators as one compiled kernel, made when a program needs it."""
