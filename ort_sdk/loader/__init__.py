"""The stage *load*: model file → ``ort_sdk.graph.Model``. How files are read is in ``ort_sdk.formats``."""

from __future__ import annotations

from .model_file import load_model

__all__ = ["load_model"]
