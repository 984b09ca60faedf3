"""Memory: constants placed and packed, copies between devices."""

from __future__ import annotations

from .arena import ARENA_ALIGNMENT_BYTES, Arena
from .data_transfer_manager import DataTransferManager
from .device_arena import ArenaBlock, DeviceArena
from .device_copy import DeviceCopy
from .external_data_manager import ExternalDataManager
from .initializers import DeviceMemory, InitializerPlacement
from .prepack import PackingNode, Prepacker, PrepackHook, PrepackSink
from .prepacked_weights_container import PrepackedWeightsContainer
from .weight_identity import WeightIdentity, weight_identity

__all__ = [
    "ARENA_ALIGNMENT_BYTES",
    "Arena",
    "ArenaBlock",
    "DataTransferManager",
    "DeviceArena",
    "DeviceCopy",
    "DeviceMemory",
    "ExternalDataManager",
    "InitializerPlacement",
    "PackingNode",
    "PrepackHook",
    "PrepackSink",
    "PrepackedWeightsContainer",
    "Prepacker",
    "WeightIdentity",
    "weight_identity",
]
