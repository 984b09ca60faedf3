"""The same as ``onnxruntime_pybind11_state``; clients import both."""

from __future__ import annotations

from .onnxruntime_pybind11_state import *  # noqa: F403 - an alias of the whole module
