"""Operators of the controlflow family. Bodies are run by the host; these kernels say when, and on what."""

from . import conditional, loop, scan, scan_batched, sequence_map

__all__ = ["conditional", "loop", "scan", "scan_batched", "sequence_map"]
