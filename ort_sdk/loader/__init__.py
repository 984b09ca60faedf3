"""Model file → ``ort_sdk.graph.Model``."""

from __future__ import annotations

from .model_file import load_model

__all__ = ["load_model"]
