"""Level 2: passes after partition, which may make contrib operators."""

from __future__ import annotations

from ort_sdk.optimizer.transformer import deferred

__all__ = ["TRANSFORMERS"]

_MATMULS = {"FusedMatMul", "MatMul"}
_NORMALIZATIONS = {"LayerNormalization", "SimplifiedLayerNormalization"}
_SKIP_NORMALIZATIONS = {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}

TRANSFORMERS = deferred(
    __name__,
    ("qdq.qdq_fusion", ("ReluQuantFusion",), ({"Relu"}, {"QuantizeLinear"})),
    ("qdq.qdq_fusion", ("QDQSelectorActionTransformer",), ({"DequantizeLinear", "QuantizeLinear"},)),
    ("nbits.dq_gather_fusion", ("DQGatherToGatherBlockQuantized",), ({"DequantizeLinear"},)),
    ("nbits.dq_matmul_fusion", ("DQMatMulToMatMulNBits",), ({"DequantizeLinear"},)),
    ("nbits.dq_shift_matmul_fusion", ("DQShiftMatMulToMatMulNBits",), ({"DequantizeLinear"}, {"Add", "Sub"})),
    (
        "normalization.embed_layer_norm_split",
        ("EmbedLayerNormSplit",),
        ({"EmbedLayerNormalization", "QEmbedLayerNormalization"},),
    ),
    ("attention.attention_projection", ("AttentionProjectionSplit",), ({"Attention", "QAttention"},)),
    ("qdq.integer_matmul_fusion", ("MatMulIntegerToFloatFusion",), ({"MatMulInteger"},)),
    ("qdq.integer_matmul_fusion", ("DynamicQuantizeMatMulFusion",), ({"MatMulIntegerToFloat"},)),
    ("activation.gelu_fusion", ("GeluFusion",), ({"Erf"},)),
    ("normalization.layer_norm_fusion", ("LayerNormFusion", "SimplifiedLayerNormFusion"), ({"ReduceMean"}, {"Sqrt"})),
    ("activation.gelu_fusion", ("FastGeluFusion",), ({"Tanh"},)),
    ("activation.gelu_fusion", ("QuickGeluFusion",), ({"Sigmoid"}, {"Mul"})),
    ("activation.gelu_fusion", ("BiasGeluFusion",), ({"FastGelu", "Gelu"},)),
    ("activation.gelu_fusion", ("GeluApproximation",), ({"BiasGelu", "Gelu"},)),
    ("attention.attention_fusion", ("AttentionFusion",), ({"Softmax"},)),
    ("attention.attention_fusion", ("AttentionBiasFusion",), ({"MultiHeadAttention"},)),
    ("normalization.skip_layer_norm_fusion", ("SkipLayerNormFusion",), (_NORMALIZATIONS, {"Add"})),
    ("normalization.skip_layer_norm_fusion", ("BiasSkipLayerNormFusion",), (_SKIP_NORMALIZATIONS, {"Add"})),
    ("activation.gemm_activation_fusion", ("GemmActivationFusion",), ({"Gemm"},)),
    ("activation.conv_activation_fusion", ("ConvAddActivationFusion",), ({"Conv"}, {"Add"})),
    ("activation.conv_activation_fusion", ("ConvActivationFusion",), ({"Conv"},)),
    ("matmul_fusion", ("MatmulTransposeFusion",), (_MATMULS, {"Transpose"})),
    ("matmul_fusion", ("MatMulScaleFusion",), (_MATMULS, {"Div", "Mul"})),
    ("activation.bias_softmax_fusion", ("BiasSoftmaxFusion",), ({"Softmax"}, {"Add"})),
    ("distance_fusion", ("ScanDistanceFusion",), ({"Scan"},)),
    ("qdq.dq_weight_folding", ("DequantizedWeightFolding",), ({"DequantizeLinear"},)),
    (".basic.conv.conv_transpose_phases", ("ConvTransposeToDepthToSpace",), ({"ConvTranspose"},)),
    (".basic.conv.batch_norm_elimination", ("BatchNormElimination",), ({"BatchNormalization"},)),
)
"""Modules, passes and what they need, in the order the passes run."""
