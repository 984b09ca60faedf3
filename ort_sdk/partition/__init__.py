"""Placement of nodes on providers, and the copies that follow from it."""

from __future__ import annotations

from .assignment import Assignment, Placement, ProviderBinding
from .graph_partitioner import FunctionLookup, partition
from .keep_float import keep_float
from .memcpy import COPY_DOMAIN, ValueDevices, insert_copies

__all__ = [
    "COPY_DOMAIN",
    "Assignment",
    "FunctionLookup",
    "Placement",
    "ProviderBinding",
    "ValueDevices",
    "insert_copies",
    "keep_float",
    "partition",
]
