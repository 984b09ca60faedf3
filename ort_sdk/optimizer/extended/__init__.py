"""Level 2: passes after partition, which may make contrib operators."""

from __future__ import annotations

import importlib
from collections.abc import Collection

from ort_sdk.optimizer.transformer import GraphTransformer

__all__ = ["transformers"]

_PASSES: tuple[tuple[str, tuple[str, ...], frozenset[str]], ...] = (
    ("qdq_fusion", ("ReluQuantFusion", "QDQSelectorActionTransformer"), frozenset({"DequantizeLinear", "QuantizeLinear"})),
    ("dq_gather_fusion", ("DQGatherToGatherBlockQuantized",), frozenset({"DequantizeLinear"})),
    ("dq_matmul_fusion", ("DQMatMulToMatMulNBits",), frozenset({"DequantizeLinear"})),
    ("attention_projection", ("AttentionProjectionSplit",), frozenset({"Attention", "QAttention"})),
    (
        "integer_matmul_fusion",
        ("MatMulIntegerToFloatFusion", "DynamicQuantizeMatMulFusion"),
        frozenset({"MatMulInteger", "QAttention"}),
    ),
    ("gelu_fusion", ("GeluFusion",), frozenset({"Erf"})),
    ("layer_norm_fusion", ("LayerNormFusion", "SimplifiedLayerNormFusion"), frozenset({"ReduceMean"})),
    (
        "gelu_fusion",
        ("FastGeluFusion", "QuickGeluFusion", "BiasGeluFusion", "GeluApproximation"),
        frozenset({"BiasGelu", "Erf", "FastGelu", "Gelu", "Sigmoid", "Tanh"}),
    ),
    ("attention_fusion", ("AttentionFusion", "AttentionBiasFusion"), frozenset({"MultiHeadAttention", "Softmax"})),
    (
        "skip_layer_norm_fusion",
        ("SkipLayerNormFusion", "BiasSkipLayerNormFusion"),
        frozenset(
            {
                "LayerNormalization",
                "RMSNormalization",
                "ReduceMean",
                "SimplifiedLayerNormalization",
                "SkipLayerNormalization",
                "SkipSimplifiedLayerNormalization",
            }
        ),
    ),
    ("gemm_activation_fusion", ("GemmActivationFusion",), frozenset({"Gemm"})),
    ("conv_activation_fusion", ("ConvAddActivationFusion", "ConvActivationFusion"), frozenset({"Conv"})),
    ("matmul_fusion", ("MatmulTransposeFusion", "MatMulScaleFusion"), frozenset({"FusedMatMul", "MatMul"})),
    ("bias_softmax_fusion", ("BiasSoftmaxFusion",), frozenset({"Softmax"})),
    ("distance_fusion", ("ScanDistanceFusion",), frozenset({"Scan"})),
    ("dq_weight_folding", ("DequantizedWeightFolding",), frozenset({"DequantizeLinear"})),
    (".basic.batch_norm_elimination", ("BatchNormElimination",), frozenset({"DequantizeLinear"})),
)
"""Modules and passes in the order they run, with the operators of which a model must have one for them to find anything."""


def transformers(op_types: Collection[str] | None = None) -> list[GraphTransformer]:
    """The passes, in the order they run.

    Args:
        op_types: operators of the model, so that passes that cannot find anything are not even imported; None gives all.
    """
    found: list[GraphTransformer] = []
    for module, names, triggers in _PASSES:
        if op_types is None or not triggers.isdisjoint(op_types):
            home = importlib.import_module(f".{module}", __name__)
            found.extend(getattr(home, name)() for name in names)
    return found
