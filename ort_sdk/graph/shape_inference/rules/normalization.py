"""Normalizations and losses."""

from __future__ import annotations

from ort_sdk.api import Shape
from ort_sdk.graph.shape_inference.dimensions import normalized_axis
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


@shape_rule("LRN", "LpNormalization", "InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization")
@shape_rule("RMSNormalization")
@shape_rule("GroupNorm", domain="com.microsoft")
def like_first(call: NodeCall) -> list[Shape | None]:
    """Shape of the first input."""
    return [call.shape(0)]


@shape_rule("BatchNormalization")
def batch_normalization(call: NodeCall) -> list[Shape | None]:
    """The data; every further output has the shape of the mean."""
    return [call.shape(0), *[call.shape(3)] * (len(call.node.outputs) - 1)]


@shape_rule("LayerNormalization", "SimplifiedLayerNormalization")
def layer_normalization(call: NodeCall) -> list[Shape | None]:
    """The data; statistics keep the axes before ``axis``."""
    x = call.shape(0)
    if x is None:
        return [None]
    axis = normalized_axis(call.attribute("axis", -1), len(x))
    statistics = (*x[:axis], *(1,) * (len(x) - axis))
    return [x, statistics, statistics]


@shape_rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(call: NodeCall) -> list[Shape | None]:
    """The data, and, as the fourth output, the sum."""
    return [call.shape(0), None, None, call.shape(0)]


@shape_rule("EmbedLayerNormalization", "QEmbedLayerNormalization", domain="com.microsoft")
def embed_layer_normalization(call: NodeCall) -> list[Shape | None]:
    """(batch, sequence, hidden), and (batch,)."""
    ids, table = call.shape(0), call.shape(2)
    if ids is None or table is None:
        return [None]
    return [(*ids, table[-1]), ids[:1], (*ids, table[-1])]


@shape_rule("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def loss(call: NodeCall) -> list[Shape | None]:
    """A scalar unless nothing is reduced, and the logarithms of probabilities."""
    is_reduced = call.attribute("reduction", "mean") != "none"
    return [() if is_reduced else call.shape(1), call.shape(0)]
