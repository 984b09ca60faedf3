"""MatMul with a sum or transposed operands, as one Gemm."""

from __future__ import annotations

from ort_sdk.api import Shape
from ort_sdk.graph import Graph, Node
from ort_sdk.graph.editing import replace_nodes, set_inputs, single_consumer
from ort_sdk.optimizer.matching import is_given, new_node, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["GemmSumFusion", "GemmTransposeFusion", "MatMulAddFusion"]


class MatMulAddFusion:
    """ORT's ``MatMulAddFusion`` for matrices; MatMul of quantized values is left to later passes."""

    name = "MatMulAddFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """MatMul + Add → Gemm."""
        changed = False
        for matmul in nodes_of(graph, "MatMul"):
            add = _sum_of(graph, matmul)
            if add is None or _is_quantized(graph, matmul, add) or not _are_matrices(graph, matmul):
                continue
            bias = _other(add, matmul.outputs[0])
            if not _fits(graph.node_arg(bias).shape, graph.node_arg(matmul.outputs[0]).shape):
                continue
            inputs = [*matmul.inputs, bias]
            gemm = new_node("Gemm", inputs, add.outputs, context.opset_imports.get("", 1), name=matmul.name)
            if gemm.since_version >= 7 and context.is_as_preferred(gemm, [matmul, add], graph):
                replace_nodes(graph, [matmul, add], [gemm])
                changed = True
        return changed


class GemmSumFusion:
    """ORT's ``GemmSumFusion``: Gemm without C, with beta 1, + Add."""

    name = "GemmSumFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Make the other summand the Gemm's C."""
        changed = False
        for gemm in nodes_of(graph, "Gemm"):
            if is_given(gemm, 2) or gemm.since_version < 11:
                continue
            add = _sum_of(graph, gemm)
            if add is None or _is_quantized(graph, gemm, add):
                continue
            bias = _other(add, gemm.outputs[0])
            if not _fits(graph.node_arg(bias).shape, graph.node_arg(gemm.outputs[0]).shape):
                continue
            attributes = {name: value for name, value in gemm.attributes.items() if name != "beta"}
            inputs = [*gemm.inputs[:2], bias]
            whole = Node("Gemm", inputs, list(add.outputs), attributes, name=gemm.name, since_version=gemm.since_version)
            if context.is_as_preferred(whole, [gemm, add], graph):
                replace_nodes(graph, [gemm, add], [whole])
                changed = True
        return changed


class GemmTransposeFusion:
    """ORT's ``GemmTransposeFusion``, for transposed operands."""

    name = "GemmTransposeFusion"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Let a Gemm read a transposed matrix as it is."""
        changed = False
        for gemm in nodes_of(graph, "Gemm"):
            for index, attribute in ((0, "transA"), (1, "transB")):
                transpose = graph.producer(gemm.inputs[index])
                if transpose is None or not _is_matrix_transpose(transpose, graph):
                    continue
                inputs = list(gemm.inputs)
                inputs[index] = transpose.inputs[0]
                set_inputs(graph, gemm, inputs)
                gemm.attributes[attribute] = 0 if gemm.attributes.get(attribute, 0) else 1
                changed = True
        return changed


def _sum_of(graph: Graph, node: Node) -> Node | None:
    """The Add that is a MatMul's only reader and has another summand."""
    add = single_consumer(graph, node.outputs[0])
    is_sum = add is not None and add.op_type == "Add" and not add.domain and add.since_version >= 7
    return add if is_sum and add is not None and add.inputs[0] != add.inputs[1] else None


def _other(add: Node, name: str) -> str:
    return add.inputs[1] if add.inputs[0] == name else add.inputs[0]


def _is_quantized(graph: Graph, matmul: Node, add: Node) -> bool:
    makers = (graph.producer(name) for name in (*matmul.inputs, *add.inputs))
    readers = graph.consumers(add.outputs[0])
    return any(maker is not None and maker.op_type == "DequantizeLinear" for maker in makers) or any(
        reader.op_type == "QuantizeLinear" for reader in readers
    )


def _are_matrices(graph: Graph, matmul: Node) -> bool:
    return all(graph.node_arg(name).rank == 2 for name in matmul.inputs)


def _fits(bias: Shape | None, result: Shape | None) -> bool:
    """Whether a summand broadcasts to a matrix without making it bigger."""
    if bias is None or result is None or len(bias) > 2:
        return False
    sizes = result[len(result) - len(bias) :]
    return all(size == 1 or (size is not None and size == whole) for size, whole in zip(bias, sizes, strict=True))


def _is_matrix_transpose(node: Node, graph: Graph) -> bool:
    if node.op_type != "Transpose" or node.domain or graph.node_arg(node.inputs[0]).rank != 2:
        return False
    return list(node.attributes.get("perm") or (1, 0)) == [1, 0]
