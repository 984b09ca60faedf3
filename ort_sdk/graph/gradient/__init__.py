"""Reverse-mode differentiation of a graph, for the operator Gradient of ai.onnx.preview.training."""

from __future__ import annotations

from .build import gradient_function

__all__ = ["gradient_function"]
