"""Casts to float around operators that ONNX Runtime computes in float only, in models written for it."""

from __future__ import annotations

from ort_sdk.graph import Graph, Model, Node
from ort_sdk.graph.editing import remove_nodes, replace_uses
from ort_sdk.partition.half_precision.insert_cast import WIDE, insert_casts

__all__ = ["with_portable_half"]

_BOTH = (
    "BitCast Cast Compress Concat ConstantOfShape DynamicSlice Flatten Gather GatherElements GatherND Identity IsNaN "
    "LayerNormalization NonMaxSuppression Optional OptionalGetElement OptionalHasElement RandomNormalLike "
    "RandomUniformLike Reshape ReverseSequence Scatter ScatterElements ScatterND SequenceAt SequenceConstruct Shape Shrink "
    "Sign SimplifiedLayerNormalization Slice Split Squeeze TensorScatter Transpose Unsqueeze com.microsoft:ExpandDims "
    "com.microsoft:GatherND com.microsoft:SkipLayerNormalization com.microsoft:SkipSimplifiedLayerNormalization "
    "com.microsoft:UnfoldTensor"
)
_HALF_ONLY = (
    "Attention Expand Mod RMSNormalization RotaryEmbedding Round SplitToSequence com.microsoft:GatherBlockQuantized "
    "com.microsoft:GroupQueryAttention com.microsoft:Inverse com.microsoft:MatMulNBits com.microsoft:QMoE "
    "com.microsoft:RotaryEmbedding com.microsoft:SparseAttention"
)
_FIRST_VERSIONS = {
    "tensor(float16)": {
        **dict.fromkeys((*_BOTH.split(), *_HALF_ONLY.split()), 1),
        "Clip": 12,
        "DequantizeLinear": 19,
        "IsInf": 20,
        "Max": 12,
        "Min": 12,
        "QuantizeLinear": 19,
    },
    "tensor(bfloat16)": {**dict.fromkeys(_BOTH.split(), 1), "IsInf": 20, "IsNaN": 20},
}
"""Type → operators for which the CPU provider of onnxruntime 1.31 has kernels of that type, and since which version."""
_DOMAINS = ("", "com.microsoft")
_PROVIDERS = ("", "CPUExecutionProvider")


def with_portable_half(model: Model) -> Model:
    """The model itself, or a copy in which nodes compute in float where ONNX Runtime has no kernel for float16 or bfloat16.

    ONNX Runtime puts casts around such nodes itself in ONNX models, but runs models in ORT format as they are.
    """
    if not any(_is_float_only(node, inner) for inner in model.graph.walk() for node in inner.nodes):
        return model
    portable = model.copy()
    given = {id(node) for inner in portable.graph.walk() for node in inner.nodes}
    insert_casts(portable.graph, portable.opset_imports, lambda _node, _graph: True, _is_float_only)
    for inner in portable.graph.walk():
        _join(inner, [node for node in inner.nodes if node.op_type == "Cast" and id(node) not in given])
    return portable


def _join(graph: Graph, casts: list[Node]) -> None:
    """Hand values on in float from one node to the next, where only casts put in here are between them."""
    down = [cast for cast in casts if graph.node_arg(cast.inputs[0]).type == WIDE]
    up = [cast for cast in casts if cast not in down]
    wide = {cast.outputs[0]: cast.inputs[0] for cast in down}
    for cast in up:
        replace_uses(graph, cast.outputs[0], wide.get(cast.inputs[0], cast.outputs[0]))
    for group in (up, down):
        remove_nodes(graph, [cast for cast in group if _is_unread(cast.outputs[0], graph)])


def _is_unread(name: str, graph: Graph) -> bool:
    return not graph.consumers(name) and not graph.is_output(name)


def _is_float_only(node: Node, graph: Graph) -> bool:
    if node.subgraphs or node.execution_provider not in _PROVIDERS or node.domain not in _DOMAINS:
        return False
    key = f"{node.domain}:{node.op_type}" if node.domain else node.op_type
    kinds = {graph.node_arg(name).type or "" for name in (*node.inputs, *node.outputs) if name} & _FIRST_VERSIONS.keys()
    first_versions = (_FIRST_VERSIONS[kind].get(key) for kind in kinds)
    return any(first is None or node.since_version < first for first in first_versions)
