"""Modules under the names by which clients of onnxruntime import its inner parts."""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = ("_pybind_state", "onnxruntime_inference_collection", "onnxruntime_pybind11_state", "onnxruntime_validation")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
