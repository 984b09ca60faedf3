"""Memory: constants placed and packed, copies between devices."""

from __future__ import annotations

from .data_transfer_manager import DataTransferManager
from .initializers import InitializerPlacement
from .prepack import PrepackHook, prepack_inputs

__all__ = ["DataTransferManager", "InitializerPlacement", "PrepackHook", "prepack_inputs"]
