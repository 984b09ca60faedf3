"""The fusions that files in ORT format can describe (those of ORT's minimal builds), by the names ORT gives them."""

from __future__ import annotations

import importlib

from ort_sdk.optimizer.pattern import FusionPass
from ort_sdk.optimizer.transformer import GraphTransformer

__all__ = ["ACTIONS", "CONV", "QDQ", "minimal_build_transformers", "recordable_passes"]

QDQ = "QDQSelectorActionTransformer"
CONV = "ConvActivationFusion"

ACTIONS: dict[str, frozenset[str]] = {
    QDQ: frozenset(
        {
            "*DQ",
            "1DQ",
            "1DQ_CPU",
            "2DQ",
            "2DQ_DML",
            "Conv",
            "DQMatMulToMatMulNBits",
            "Gemm",
            "MatMul",
            "Where",
            "drop",
            "dropDQ",
            "dropSplitQDQ",
            "drop_no_int16_support",
            "drop_no_int16_support_and_positive_scale",
        }
    ),
    CONV: frozenset({"ConvAct", "ConvAddRelu"}),
}
"""ORT's optimizers that make records → the actions they know."""


def recordable_passes() -> dict[str, FusionPass]:
    """Optimizer → our pass of that name."""
    modules = {QDQ: ".qdq_fusion", CONV: ".conv_activation_fusion"}
    return {name: getattr(importlib.import_module(module, __package__), name)() for name, module in modules.items()}


def minimal_build_transformers(*, only_recordless: bool) -> list[GraphTransformer]:
    """The passes behind partition that a minimal build of ONNX Runtime has, in the order they run.

    Args:
        only_recordless: leave out those whose fusions can be recorded.
    """
    from .qdq_fusion import ReluQuantFusion

    recordless: list[GraphTransformer] = [ReluQuantFusion()]
    return recordless if only_recordless else [*recordless, *recordable_passes().values()]
