"""ONNX's operators, written once over an array namespace, for providers to register."""

from __future__ import annotations

from .definition import OperatorDefinition, add_opset, as_namespace, operator
from .namespace import ArrayNamespace
from .numpy_namespace import NumpyNamespace

__all__ = ["ArrayNamespace", "NumpyNamespace", "OperatorDefinition", "add_opset", "as_namespace", "operator"]
