"""ort_sdk: ONNX Runtime's machinery as a plugin-based SDK in Python.

``import ort_sdk as ort`` serves code written for onnxruntime. Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .session.inference_session import InferenceSession

__all__ = ["InferenceSession", "__version__"]

__version__ = "0.1.0"

_HOMES = {
    "InferenceSession": "session.inference_session",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    value = getattr(importlib.import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
