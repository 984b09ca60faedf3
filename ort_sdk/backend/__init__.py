"""ONNX's backend API: ``prepare``, ``run_model``, ``run``, ``supports_device``, ``is_compatible``."""

from __future__ import annotations

from .backend import OrtSdkBackend, is_compatible, prepare, run, run_model, supports_device
from .backend_rep import OrtSdkBackendRep

__all__ = ["OrtSdkBackend", "OrtSdkBackendRep", "is_compatible", "prepare", "run", "run_model", "supports_device"]
