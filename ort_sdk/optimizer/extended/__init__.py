"""Level 2: passes after partition, which may make contrib operators."""

from __future__ import annotations

from ort_sdk.optimizer.transformer import GraphTransformer

from .attention_fusion import AttentionFusion
from .bias_softmax_fusion import BiasSoftmaxFusion
from .conv_activation_fusion import ConvActivationFusion, ConvAddActivationFusion
from .gelu_fusion import BiasGeluFusion, FastGeluFusion, GeluApproximation, GeluFusion, QuickGeluFusion
from .gemm_activation_fusion import GemmActivationFusion
from .integer_matmul_fusion import DynamicQuantizeMatMulFusion, MatMulIntegerToFloatFusion
from .layer_norm_fusion import LayerNormFusion, SimplifiedLayerNormFusion
from .matmul_fusion import MatMulScaleFusion, MatmulTransposeFusion
from .qdq_fusion import QDQSelectorActionTransformer, ReluQuantFusion
from .skip_layer_norm_fusion import BiasSkipLayerNormFusion, SkipLayerNormFusion

__all__ = ["transformers"]


def transformers() -> list[GraphTransformer]:
    """The passes, in the order they run."""
    return [
        ReluQuantFusion(),
        QDQSelectorActionTransformer(),
        MatMulIntegerToFloatFusion(),
        DynamicQuantizeMatMulFusion(),
        GeluFusion(),
        LayerNormFusion(),
        SimplifiedLayerNormFusion(),
        FastGeluFusion(),
        QuickGeluFusion(),
        BiasGeluFusion(),
        GeluApproximation(),
        AttentionFusion(),
        SkipLayerNormFusion(),
        BiasSkipLayerNormFusion(),
        GemmActivationFusion(),
        ConvAddActivationFusion(),
        ConvActivationFusion(),
        MatmulTransposeFusion(),
        MatMulScaleFusion(),
        BiasSoftmaxFusion(),
    ]
