"""The domain of ONNX Runtime's operators on blocks of channels."""

from __future__ import annotations

__all__ = ["NCHWC"]


NCHWC = "com.microsoft.nchwc"
"""The domain."""
