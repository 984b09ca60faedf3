"""The fusions that files in ORT format can describe (those of ORT's minimal builds), by the names ORT gives them."""

from __future__ import annotations

import importlib

from ort_sdk.optimizer.pattern import FusionPass
from ort_sdk.optimizer.transformer import GraphTransformer

__all__ = ["ACTIONS", "CONV", "NBITS", "QDQ", "minimal_build_transformers", "optimizer_of", "pass_of", "recordable_passes"]

QDQ = "QDQSelectorActionTransformer"
CONV = "ConvActivationFusion"
NBITS = "DQMatMulToMatMulNBits"
"""A rule of the first, and a pass of its own here."""

ACTIONS: dict[str, frozenset[str]] = {
    QDQ: frozenset(
        {
            "*DQ",
            "1DQ",
            "1DQ_CPU",
            "2DQ",
            "2DQ_DML",
            "Conv",
            NBITS,
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


_MODULES = {QDQ: "qdq.qdq_fusion", NBITS: "nbits.dq_matmul_fusion", CONV: "activation.conv_activation_fusion"}


def recordable_passes() -> dict[str, FusionPass]:
    """Our passes that do what ORT's optimizers do, by their names."""
    package = __package__.rpartition(".")[0]
    return {name: getattr(importlib.import_module(f"{package}.{module}"), name)() for name, module in _MODULES.items()}


def optimizer_of(pass_name: str) -> str:
    """ORT's optimizer that has a pass of ours among its rules."""
    return QDQ if pass_name == NBITS else pass_name


def pass_of(optimizer: str, action: str) -> str:
    """Name of our pass that does what an action of an optimizer does, if we have one."""
    return NBITS if (optimizer, action) == (QDQ, NBITS) else optimizer


def minimal_build_transformers(*, only_recordless: bool) -> list[GraphTransformer]:
    """The passes after partition that a minimal build of ONNX Runtime has, in the order they run.

    Args:
        only_recordless: leave out those whose fusions can be recorded.
    """
    from ort_sdk.optimizer.extended.qdq.qdq_fusion import ReluQuantFusion

    recordless: list[GraphTransformer] = [ReluQuantFusion()]
    return recordless if only_recordless else [*recordless, *recordable_passes().values()]
