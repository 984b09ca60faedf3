"""Transposes of images to channels last, moved past the nodes that follow, so that two that undo each other meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ort_sdk.graph import ArrayTensor, Graph, Node
from ort_sdk.graph.editing import add_constant, replace_nodes, unused_name
from ort_sdk.optimizer.matching import constant_array, integers, is_given, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["TransposeSinking"]

_UNARY = frozenset({
    *("Abs", "Cast", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu"),
    *("Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh"),
    "ThresholdedRelu",
})  # fmt: skip
_BROADCASTING = frozenset({"Add", "Div", "Max", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum"})
_REDUCING = frozenset({"ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Squeeze"})
_WITH_CHANNELS_FIRST = frozenset({
    *("AveragePool", "BatchNormalization", "Concat", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool"),
    *("GlobalMaxPool", "InstanceNormalization", "LRN", "MaxPool", "Pad", "Resize", "SpaceToDepth", "Upsample"),
})  # fmt: skip
"""What makes images with channels first, or hands them on."""
_MOVED_THROUGH = frozenset({*_UNARY, *_BROADCASTING, *_REDUCING, "Concat", "Pad"})
_FIRST_BROADCASTING = 7
"""Version of Add and its like from which on they broadcast as NumPy does."""


class TransposeSinking:
    """Of ORT's ``TransposeOptimizer`` what moves transposes of images past element-wise nodes, Concat, Pad and reductions."""

    name = "TransposeSinking"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Move each as far as it goes."""
        changed = False
        if nodes_of(graph, "Transpose"):
            for node in nodes_of(graph, *_MOVED_THROUGH):
                changed |= _move(node, graph)
        return changed


def _move(node: Node, graph: Graph) -> bool:
    """Move the transposes in front of a node past it."""
    count = 1 if node.op_type in {*_UNARY, *_REDUCING, "Pad"} else len(node.inputs)
    transposes = [_transpose(name, graph) for name in node.inputs[:count]]
    first = next((each for each in transposes if each is not None), None)
    if first is None or len(node.outputs) != 1:
        return False
    perm = list(first.attributes["perm"])
    given = [each for each in transposes if each is not None]
    if any(list(each.attributes["perm"]) != perm for each in given) or not _is_worth_it(node, given, graph):
        return False
    moved = _moved(node, perm, transposes, graph)
    if moved is None:
        return False
    made, keeps_rank = moved
    output = node.outputs[0]
    if not keeps_rank:
        made.outputs = [output]
        replace_nodes(graph, [node], [made])
        return True
    made.outputs = [unused_name(graph, f"{output}/channels_first")]
    known = graph.values.get(output)
    after = Node("Transpose", list(made.outputs), [output], {"perm": perm}, since_version=first.since_version)
    replace_nodes(graph, [node], [made, after])
    if known is not None:
        shape = None if known.shape is None else tuple(known.shape[perm.index(axis)] for axis in range(len(perm)))
        graph.set_value(replace(known, name=made.outputs[0], shape=shape))
    return True


def _transpose(name: str, graph: Graph) -> Node | None:
    """What makes a value, if it transposes an image to channels last."""
    node = graph.producer(name)
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    perm = list(node.attributes.get("perm") or ())
    return node if len(perm) > 2 and perm == [0, *range(2, len(perm)), 1] else None


def _is_worth_it(node: Node, transposes: Sequence[Node], graph: Graph) -> bool:
    """Whether one transpose will be gone, or go on past all its readers, and one comes from what works on images."""
    if not any(_can_go(node, each.outputs[0], graph) for each in transposes):
        return False
    makers = [graph.producer(each.inputs[0]) for each in transposes]
    known = _WITH_CHANNELS_FIRST | _UNARY | _BROADCASTING | _REDUCING
    return any(maker is not None and not maker.domain and maker.op_type in known for maker in makers)


def _can_go(node: Node, value: str, graph: Graph) -> bool:
    """Whether nothing but a node, or only what a transpose can move past, reads a value."""
    readers = set(graph.consumers(value))
    is_moved = all(not reader.domain and reader.op_type in _MOVED_THROUGH | {"Transpose"} for reader in readers)
    return not graph.is_output(value) and (readers == {node} or is_moved)


def _moved(node: Node, perm: list[int], transposes: Sequence[Node | None], graph: Graph) -> tuple[Node, bool] | None:
    """The node on channels first, without outputs, and whether its result is to be transposed; None if there is none."""
    inputs = [name if each is None else each.inputs[0] for name, each in zip(node.inputs, transposes, strict=False)]
    inputs += node.inputs[len(inputs) :]
    made = Node(node.op_type, inputs, [], dict(node.attributes), name=node.name, since_version=node.since_version)
    if node.op_type in _UNARY:
        return made, True
    if node.op_type in _REDUCING:
        return _reduced(node, made, perm, graph)
    if node.op_type == "Pad":
        return (made, True) if _permute_pads(node, made, perm, graph) else None
    if node.op_type == "Concat":
        axis = int(node.attributes.get("axis", 1))
        made.attributes["axis"] = perm[axis + len(perm) if axis < 0 else axis]
        return None if None in transposes else (made, True)
    return (made, True) if _permute_constants(node, made, perm, transposes, graph) else None


def _permute_constants(node: Node, made: Node, perm: list[int], transposes: Sequence[Node | None], graph: Graph) -> bool:
    """Give an operator that broadcasts its constants with channels first."""
    if node.since_version < _FIRST_BROADCASTING:
        return False
    for index, each in enumerate(transposes):
        if each is not None:
            continue
        array = constant_array(graph, node, index)
        if array is None or array.ndim > len(perm) or (node.op_type == "PRelu" and index == 0):
            return False
        if array.size != 1:
            whole = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
            permuted = np.ascontiguousarray(whole.transpose(np.argsort(perm)))
            made.inputs[index] = add_constant(graph, f"{node.inputs[index]}/channels_first", ArrayTensor(permuted))
    return True


def _permute_pads(node: Node, made: Node, perm: list[int], graph: Graph) -> bool:
    """Give Pad its amounts with channels first."""
    pads = integers(graph, node, 1, "pads")
    if pads is None or len(pads) != 2 * len(perm) or is_given(node, 3):
        return False
    order = np.argsort(perm)
    permuted = np.array(pads, np.int64).reshape(2, -1)[:, order].reshape(-1)
    if is_given(node, 1):
        made.inputs[1] = add_constant(graph, f"{node.inputs[1]}/channels_first", ArrayTensor(permuted))
    else:
        made.attributes["pads"] = permuted.tolist()
    return True


def _reduced(node: Node, made: Node, perm: list[int], graph: Graph) -> tuple[Node, bool] | None:
    """A reduction, or Squeeze, of axes that are known."""
    axes = integers(graph, node, 1, "axes")
    if not axes or not all(-len(perm) <= axis < len(perm) for axis in axes):
        return None
    gone = {axis % len(perm) for axis in axes}
    left = [perm[axis] for axis in range(len(perm)) if axis not in gone]
    keeps_rank = node.op_type != "Squeeze" and bool(node.attributes.get("keepdims", 1))
    if not keeps_rank and left != sorted(left):
        return None
    permuted = sorted(perm[axis] for axis in gone)
    if is_given(node, 1):
        made.inputs[1] = add_constant(graph, f"{node.inputs[1]}/channels_first", ArrayTensor(np.array(permuted, np.int64)))
    else:
        made.attributes["axes"] = permuted
    return made, keeps_rank
