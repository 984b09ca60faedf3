"""Level 2: passes after partition, which may make contrib operators."""

from __future__ import annotations

from ort_sdk.optimizer.transformer import deferred

__all__ = ["TRANSFORMERS"]

_PRODUCTS = {"FusedMatMul", "MatMul"}
_NORMALIZATIONS = {"LayerNormalization", "SimplifiedLayerNormalization"}
_SKIP_NORMALIZATIONS = {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}

TRANSFORMERS = deferred(
    __name__,
    ("qdq_fusion", ("ReluQuantFusion",), ({"Relu"}, {"QuantizeLinear"})),
    ("qdq_fusion", ("QDQSelectorActionTransformer",), ({"DequantizeLinear", "QuantizeLinear"},)),
    ("nbits.dq_gather_fusion", ("DQGatherToGatherBlockQuantized",), ({"DequantizeLinear"},)),
    ("nbits.dq_matmul_fusion", ("DQMatMulToMatMulNBits",), ({"DequantizeLinear"},)),
    ("nbits.dq_shift_matmul_fusion", ("DQShiftMatMulToMatMulNBits",), ({"DequantizeLinear"}, {"Add", "Sub"})),
    ("embed_layer_norm_split", ("EmbedLayerNormSplit",), ({"EmbedLayerNormalization", "QEmbedLayerNormalization"},)),
    ("attention_projection", ("AttentionProjectionSplit",), ({"Attention", "QAttention"},)),
    ("integer_matmul_fusion", ("MatMulIntegerToFloatFusion",), ({"MatMulInteger"},)),
    ("integer_matmul_fusion", ("DynamicQuantizeMatMulFusion",), ({"MatMulIntegerToFloat"},)),
    ("gelu_fusion", ("GeluFusion",), ({"Erf"},)),
    ("layer_norm_fusion", ("LayerNormFusion", "SimplifiedLayerNormFusion"), ({"ReduceMean"}, {"Sqrt"})),
    ("gelu_fusion", ("FastGeluFusion",), ({"Tanh"},)),
    ("gelu_fusion", ("QuickGeluFusion",), ({"Sigmoid"}, {"Mul"})),
    ("gelu_fusion", ("BiasGeluFusion",), ({"FastGelu", "Gelu"},)),
    ("gelu_fusion", ("GeluApproximation",), ({"BiasGelu", "Gelu"},)),
    ("attention_fusion", ("AttentionFusion",), ({"Softmax"},)),
    ("attention_fusion", ("AttentionBiasFusion",), ({"MultiHeadAttention"},)),
    ("skip_layer_norm_fusion", ("SkipLayerNormFusion",), (_NORMALIZATIONS, {"Add"})),
    ("skip_layer_norm_fusion", ("BiasSkipLayerNormFusion",), (_SKIP_NORMALIZATIONS, {"Add"})),
    ("gemm_activation_fusion", ("GemmActivationFusion",), ({"Gemm"},)),
    ("conv_activation_fusion", ("ConvAddActivationFusion",), ({"Conv"}, {"Add"})),
    ("conv_activation_fusion", ("ConvActivationFusion",), ({"Conv"},)),
    ("matmul_fusion", ("MatmulTransposeFusion",), (_PRODUCTS, {"Transpose"})),
    ("matmul_fusion", ("MatMulScaleFusion",), (_PRODUCTS, {"Div", "Mul"})),
    ("bias_softmax_fusion", ("BiasSoftmaxFusion",), ({"Softmax"}, {"Add"})),
    ("distance_fusion", ("ScanDistanceFusion",), ({"Scan"},)),
    ("dq_weight_folding", ("DequantizedWeightFolding",), ({"DequantizeLinear"},)),
    (".basic.conv_transpose_phases", ("ConvTransposeToDepthToSpace",), ({"ConvTranspose"},)),
    (".basic.batch_norm_elimination", ("BatchNormElimination",), ({"BatchNormalization"},)),
)
"""Modules, passes and what they need, in the order the passes run."""
