"""Nodes of ONNX Runtime's layout of blocks of channels (``com.microsoft.nchwc``) → ONNX's nodes on NCHW.

ONNX Runtime's ``NchwcTransformer`` runs at ``ORT_ENABLE_ALL``, also when a model is saved. A blocked value has the shape
(N, C, H, W) of ONNX's, C rounded up to whole blocks, and its memory is (N, C / block, H, W, block). Constant weights are
stored in blocks, too. No file says how large blocks are: see ``block_size``.
"""

from __future__ import annotations

from ort_sdk.graph import Model

from .domain import NCHWC

__all__ = ["restore_nchw"]


def restore_nchw(model: Model) -> None:
    """Replace the nodes of the domain, if there are any, so that the model is one that any provider runs.

    Args:
        model: changed in place: nodes, names of values between them, constants.

    Raises:
        InvalidGraph: shapes fit no size of blocks, a weight is no constant, or a node breaks its operator's rules.
    """
    if not any(node.domain == NCHWC for graph in model.graph.walk() for node in graph.nodes):
        return
    from .restoring import restore

    restore(model)
