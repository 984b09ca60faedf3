"""Operators that ONNX Runtime has no kernels for, replaced by their definitions in models written for it."""

from __future__ import annotations

from ort_sdk.graph import Graph, Model, Node
from ort_sdk.graph.inline import inline_function
from ort_sdk.graph.shape_inference import infer_shapes
from ort_sdk.graph.type_inference import infer_types
from ort_sdk.loader.function_lookup import function_lookup
from ort_sdk.optimizer.function_inlining import MAX_DEPTH

__all__ = ["with_portable_operators"]

DEFINED_ONLY = frozenset(
    {
        "Bernoulli",
        "CastLike",
        "CausalConvWithState",
        "CenterCropPad",
        "GroupNormalization",
        "HardSwish",
        "LinearAttention",
        "Mish",
        "NegativeLogLikelihoodLoss",
        "SequenceMap",
        "SoftmaxCrossEntropyLoss",
        "SwiGLU",
        "Swish",
    }
)
"""Operators of ONNX that ONNX Runtime's CPU provider runs as the nodes that define them."""


def with_portable_operators(model: Model) -> Model:
    """The model itself, or a copy in which those operators are inlined: a file in ORT format brings no definitions along.

    Raises:
        InvalidGraph: a call does not fit its definition.
    """
    if not _calls(model.graph):
        return model
    portable = model.copy()
    find_function = function_lookup(portable)
    for _ in range(MAX_DEPTH):
        calls = [(inner, node, find_function(node, inner)) for inner, node in _calls(portable.graph)]
        inlined = False
        for inner, node, function in calls:
            if function is not None:
                inline_function(inner, node, function)
                inlined = True
        if not inlined:
            break
        portable.graph.sort()
        infer_types(portable.graph, portable.schemas)
        infer_shapes(portable.graph)
    return portable


def _calls(graph: Graph) -> list[tuple[Graph, Node]]:
    return [(inner, node) for inner in graph.walk() for node in inner.nodes if not node.domain and node.op_type in DEFINED_ONLY]
