"""Level 1: passes before partition, which use ONNX operators only."""

from __future__ import annotations

from ort_sdk.optimizer.transformer import GraphTransformer

__all__ = ["transformers"]


def transformers() -> list[GraphTransformer]:
    """The passes, in the order they run."""
    from .constant_folding import ConstantFolding
    from .shape_inference import ShapeInference

    return [ShapeInference(), ConstantFolding()]
