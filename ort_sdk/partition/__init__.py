"""Placement of nodes on providers, and the copies that follow from it."""

from __future__ import annotations

from ort_sdk.loader.function_lookup import FunctionLookup

from .assignment import Assignment, Placement, ProviderBinding
from .carried_values import carried_values
from .graph_partitioner import partition
from .half_precision.keep_float import keep_float
from .memcpy import COPY_DOMAIN, ValueDevices, carried_devices, insert_copies

__all__ = [
    "COPY_DOMAIN",
    "Assignment",
    "FunctionLookup",
    "Placement",
    "ProviderBinding",
    "ValueDevices",
    "carried_devices",
    "carried_values",
    "insert_copies",
    "keep_float",
    "partition",
]
