"""Operators of the controlflow family. Bodies are run by the host; these kernels say when, and on what."""
