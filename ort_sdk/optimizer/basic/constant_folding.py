"""Nodes that depend on nothing but constants, computed before the model runs."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ort_sdk.api import HostArray, NodeArg, Tensor, tensor_type, tensor_type_element
from ort_sdk.config_keys import CONSTANT_FOLDING_MAX_OUTPUT_SIZE_IN_BYTES, DISABLE_QUANT_QDQ
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.derived_tensor import DerivedTensor, private_array
from ort_sdk.graph.editing import remove_nodes
from ort_sdk.graph.shape_inference import Contents, infer_shapes
from ort_sdk.graph.tensor import ArrayTensor
from ort_sdk.optimizer.transformer import TransformerContext

from .inline_branch import inline_constant_branch

__all__ = ["ConstantFolding"]

logger = logging.getLogger("ort_sdk.optimizer")


_DEFAULT_MAX_OUTPUT = 2**30
SMALL_BYTES = 64 * 1024
"""Results up to this size are computed at once."""
_INFLATION_BYTES = 2**20
_INFLATION_RATIO = 4
_COMPUTED_BYTES = 2**26
_COMPUTED = frozenset({"Add", "Div", "Mul", "Pow", "Sub"})
"""Operators whose results may be so big whatever they are made of: each element costs a computation in each run."""
_DEFERRED = frozenset({
    *("Add", "Cast", "Concat", "Div", "Flatten", "Gather", "Identity", "Mul", "Neg", "Reciprocal", "Reshape", "Slice"),
    *("Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze"),
})  # fmt: skip
"""Operators that cannot fail for inputs of known shapes and are no slower than a copy: big results are computed when read."""


class ConstantFolding:
    """ORT's ``ConstantFolding``: also inlines the branch of an If whose condition is known, and uses shapes that are.

    Left alone are DequantizeLinear (unless ``session.disable_quant_qdq`` is set: quantized weights stay small, and later
    passes look for them), results beyond ``optimization.constant_folding_max_output_size_in_bytes``, results over 1 MiB that
    are more than four times as big as what they are made of (over 64 MiB, where each element is computed: tables of sines and
    cosines are made of those), and whatever fails or may give another result another time.
    """

    name = "ConstantFolding"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Fold one graph; for the main graph, also fold what is known of sizes, in its bodies too."""
        changed = self._fold_sizes(graph) if graph.parent is None else False
        changed |= self._inline_branches(graph, context)
        folded = [node for node in list(graph.nodes) if _is_constant(node, graph) and _fold(node, graph, context)]
        remove_nodes(graph, folded)
        return changed or bool(folded)

    @staticmethod
    def _inline_branches(graph: Graph, context: TransformerContext) -> bool:
        conditional = [node for node in graph.nodes if node.op_type == "If" and not node.domain]
        inlined = [node for node in conditional if inline_constant_branch(graph, node, context.opset_imports.get("", 1))]
        return bool(inlined)

    @staticmethod
    def _fold_sizes(graph: Graph) -> bool:
        if not any(node.op_type in {"Shape", "Size"} for inner in graph.walk() for node in inner.nodes):
            return False
        known = infer_shapes(graph)
        folded = [inner for inner in graph.walk() if _fold_contents(inner, known.get(id(inner), {}))]
        return bool(folded)


def _fold_contents(graph: Graph, contents: Mapping[str, Contents]) -> bool:
    """Make initializers of the integer values whose every element is known."""
    folded = []
    for name, elements in contents.items():
        argument = graph.node_arg(name)
        node = graph.producer(name)
        if node is None or len(node.outputs) != 1 or argument.shape is None or argument.type is None:
            continue
        if all(isinstance(element, int) for element in elements):
            element_type = tensor_type_element(argument.type)
            if element_type is None or argument.shape not in {(), (len(elements),)}:
                continue
            graph.add_initializer(name, ArrayTensor(np.array(elements, element_type.numpy_dtype).reshape(argument.shape)))
            folded.append(node)
    remove_nodes(graph, folded)
    return bool(folded)


def _is_constant(node: Node, graph: Graph) -> bool:
    """Whether all inputs are constant and there is nothing more to a node."""
    for name in node.inputs:  # no generator: for most nodes the first input decides
        if name and graph.constant(name) is None:
            return False
    return not node.subgraphs


def _fold(node: Node, graph: Graph, context: TransformerContext) -> bool:
    if node.op_type == "DequantizeLinear" and context.config.get(DISABLE_QUANT_QDQ) != "1":
        return False
    tensors = [graph.constant(name) if name else None for name in node.inputs]
    limit = int(context.config.get(CONSTANT_FOLDING_MAX_OUTPUT_SIZE_IN_BYTES, _DEFAULT_MAX_OUTPUT)) or math.inf
    read = sum(tensor.nbytes for tensor in tensors if tensor is not None)
    size = _output_bytes(node, graph)
    if size is not None and _is_too_big(node, size, read, limit):
        return False
    if size is not None and size > SMALL_BYTES and _is_deferrable(node):
        argument = graph.node_arg(node.outputs[0])
        graph.add_initializer(argument.name, _deferred(node, graph, argument, tensors, context))
        return True
    results = _evaluate(node, graph, tensors, context)
    if results is None or _is_too_big(node, sum(result.nbytes for result in results.values()), read, limit):
        return False
    for name, result in results.items():
        graph.add_initializer(name, result)
    return True


def _is_too_big(node: Node, size: int, read: int, limit: float) -> bool:
    most = _COMPUTED_BYTES if node.op_type in _COMPUTED else _INFLATION_BYTES
    return size > limit or (size > most and size > _INFLATION_RATIO * read)


def _output_bytes(node: Node, graph: Graph) -> int | None:
    """Bytes of all outputs, if their types and shapes are known."""
    size = 0
    for name in filter(None, node.outputs):
        argument = graph.node_arg(name)
        element_type = argument.element_type
        if element_type is None or argument.shape is None or not all(isinstance(dim, int) for dim in argument.shape):
            return None
        size += element_type.nbytes(math.prod(dim for dim in argument.shape if isinstance(dim, int)))
    return size


def _is_deferrable(node: Node) -> bool:
    return node.op_type in _DEFERRED and not node.domain and len(node.outputs) == 1


def _deferred(node: Node, graph: Graph, output: NodeArg, tensors: Sequence[Tensor | None], context: TransformerContext) -> Tensor:
    """The result as a constant that is computed when it is read, free of the graph it was in."""
    alone = Graph(name=graph.name, nodes=[node.copy()], outputs=[output])
    alone.set_value(output)
    sources = [tensor for tensor in tensors if tensor is not None]
    for name, tensor in zip(node.inputs, tensors, strict=True):
        if tensor is not None:
            alone.add_initializer(name, tensor)

    evaluate = context.evaluate  # the context knows the graph, which is to hold the result

    def compute(*_sources: Tensor) -> HostArray:
        arrays = [None if tensor is None else _read(tensor) for tensor in tensors]
        results = evaluate(alone.nodes[0], alone, arrays)
        if not results:
            raise RuntimeError(f"{node.describe()} was folded and has no kernel any more")
        return _contiguous(results[0])

    element_type = output.element_type
    if element_type is None or output.shape is None:
        raise ValueError(f"output '{output.name}' has no type or shape")
    shape = tuple(dim for dim in output.shape if isinstance(dim, int))
    positions = [index for index, tensor in enumerate(tensors) if tensor is not None]
    transformation = f"{node.op_type}-{node.since_version}{positions}{sorted(map(str, node.attributes.items()))}"
    return DerivedTensor(transformation, element_type, shape, sources, compute)


def _read(tensor: Tensor) -> HostArray:
    return tensor.numpy() if tensor.nbytes <= SMALL_BYTES else private_array(tensor)


def _evaluate(
    node: Node, graph: Graph, tensors: Sequence[Tensor | None], context: TransformerContext
) -> dict[str, Tensor] | None:
    """Output name → value; None if no kernel may compute it, it failed, or it is no tensor of the expected type."""
    try:
        with np.errstate(all="ignore"):
            arrays = [None if tensor is None else tensor.numpy() for tensor in tensors]
            results = context.evaluate(node, graph, arrays)
    except Exception as error:  # noqa: BLE001 - a kernel may raise anything; the node stays, and raises when it runs
        logger.info("%s is not folded: %s", node.describe(), error)
        return None
    if results is None:
        return None
    folded: dict[str, Tensor] = {}
    for name, result in zip(node.outputs, results, strict=False):
        if not name:
            continue
        if not isinstance(result, (np.ndarray, np.generic)):
            return None
        folded[name] = ArrayTensor(_contiguous(np.asarray(result)))
        if graph.node_arg(name).type not in {None, tensor_type(folded[name].element_type)}:
            return None
    return folded if len(folded) == sum(map(bool, node.outputs)) else None


def _contiguous(array: HostArray) -> HostArray:
    return array if array.flags.c_contiguous else array.copy()
