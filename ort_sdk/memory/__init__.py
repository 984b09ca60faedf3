"""Memory: constants placed and packed, copies between devices."""

from __future__ import annotations

from .arena import Arena, BufferLifetime, lay_out
from .data_transfer_manager import DataTransferManager
from .initializers import InitializerPlacement
from .prepack import PrepackHook, prepack_inputs

__all__ = ["Arena", "BufferLifetime", "DataTransferManager", "InitializerPlacement", "PrepackHook", "lay_out", "prepack_inputs"]
