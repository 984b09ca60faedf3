"""Strict devices: in host memory, but with every fault of a host made visible."""
