"""Level 2: passes after partition, which may make contrib operators."""

from __future__ import annotations

from ort_sdk.optimizer.transformer import GraphTransformer

from .conv_activation_fusion import ConvActivationFusion, ConvAddActivationFusion
from .gelu_fusion import BiasGeluFusion, FastGeluFusion, GeluApproximation, GeluFusion, QuickGeluFusion
from .gemm_activation_fusion import GemmActivationFusion
from .matmul_fusion import MatMulScaleFusion, MatmulTransposeFusion

__all__ = ["transformers"]


def transformers() -> list[GraphTransformer]:
    """The passes, in the order they run."""
    return [
        GeluFusion(),
        FastGeluFusion(),
        QuickGeluFusion(),
        BiasGeluFusion(),
        GeluApproximation(),
        GemmActivationFusion(),
        ConvAddActivationFusion(),
        ConvActivationFusion(),
        MatmulTransposeFusion(),
        MatMulScaleFusion(),
    ]
