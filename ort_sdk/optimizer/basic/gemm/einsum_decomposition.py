"""Einsum of one or two operands as a transpose, a product of elements or a product of matrices; of more as several of two."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ort_sdk.api import NodeArg, Shape, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import ArrayTensor, Graph, Node
from ort_sdk.graph.editing import add_constant, replace_nodes, unused_name
from ort_sdk.optimizer.matching import new_node, nodes_of
from ort_sdk.optimizer.transformer import TransformerContext

__all__ = ["EinsumDecomposition"]

_TYPES = frozenset({TensorElementType.FLOAT, TensorElementType.DOUBLE})
_FIRST_WITH_AXES_AS_INPUT = 13
_MOST_OPERANDS = 2
Size = int | str | None


class EinsumDecomposition:
    """Einsum of one or two operands as Transpose, Mul or MatMul, which providers fuse with their neighbours.

    One of more operands becomes several of two, from the left.

    Left alone are equations with an ellipsis, with a label twice in a term, or with one that only one operand has and that is
    summed over, and those that need sizes which are not known.
    """

    name = "EinsumDecomposition"

    def apply(self, graph: Graph, context: TransformerContext) -> bool:
        """Replace what can be in one graph."""
        changed = False
        for node in nodes_of(graph, "Einsum"):
            made = _made(node, graph, context.opset_imports.get("", 1))
            if made is None:
                continue
            if all(context.is_as_preferred(each, [node], graph) for each in made):
                replace_nodes(graph, [node], made)
                changed = True
            else:
                _forget(made, node, graph)
        return changed


@dataclass(frozen=True, slots=True)
class _Operand:
    """A value, with a label for each dimension."""

    name: str
    labels: str
    shape: Shape

    def size(self, label: str) -> Size:
        return self.shape[self.labels.index(label)]

    def sizes(self, labels: str) -> tuple[Size, ...]:
        return tuple(map(self.size, labels))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What an equation comes to.

    Args:
        operands: one or two; of two whose matrices are multiplied, the first is on the left.
        output: labels of the result.
        inner: labels that are summed over.
    """

    operands: Sequence[_Operand]
    output: str
    inner: str

    @property
    def shared(self) -> str:
        """Labels of the result that both operands have, in its order."""
        return "".join(label for label in self.output if all(label in operand.labels for operand in self.operands))

    def own(self, index: int) -> str:
        """Labels of the result that only one operand has, in its order."""
        other = self.operands[1 - index].labels
        return "".join(label for label in self.output if label not in other)


def _made(node: Node, graph: Graph, opset: int) -> list[Node] | None:
    """What replaces a node; None if it is left alone."""
    terms = _terms(node)
    if terms is None or graph.node_arg(node.outputs[0]).element_type not in _TYPES:
        return None
    *inputs, output = terms
    operands: list[_Operand] = []
    for labels, name in zip(inputs, node.inputs, strict=True):
        shape = graph.node_arg(name).shape
        if shape is None or len(shape) != len(labels):
            return None
        operands.append(_Operand(name, labels, shape))
    writer = _Writer(node, graph, opset)
    if len(operands) > _MOST_OPERANDS:
        return writer.pair(operands, output)
    plan = _plan(operands, output)
    return None if plan is None else writer.nodes(plan)


def _plan(operands: list[_Operand], output: str) -> _Plan | None:
    """The plan for one or two operands; None if the node is left alone."""
    shared = set(operands[0].labels).intersection(operands[-1].labels)
    inner = "".join(label for label in operands[0].labels if label in shared and label not in output)
    if any(label not in output and label not in inner for operand in operands for label in operand.labels):
        return None
    if len(operands) == 1:
        return _Plan(operands, output, "") if not inner else None
    plan = _Plan(operands, output, inner)
    outer = [label for label in output if label not in plan.shared]
    if inner and outer and outer[0] not in operands[0].labels:
        plan = _Plan(operands[::-1], output, inner)
    return plan if not inner or _are_matrices(plan) else None


def _terms(node: Node) -> list[str] | None:
    """Labels of the operands and of the result; None for equations that are left alone."""
    left, arrow, output = str(node.attributes.get("equation", "")).replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        output = "".join(sorted(label for label in set(left) - {","} if left.count(label) == 1))
    is_plain = all(term.isascii() and (term.isalpha() or not term) and len(set(term)) == len(term) for term in [*terms, output])
    fits = len(terms) == len(node.inputs) and set(output) <= set(left)
    return [*terms, output] if is_plain and fits else None


def _are_matrices(plan: _Plan) -> bool:
    """Whether what is summed over is as long in both operands, and lengths that are multiplied are known."""
    left, right = plan.operands
    inner = left.sizes(plan.inner)
    if None in inner or inner != right.sizes(plan.inner):
        return False
    multiplied = [*(inner if len(inner) > 1 else ()), *(right.sizes(plan.own(1)) if len(plan.own(1)) > 1 else ())]
    return all(isinstance(size, int) and size > 0 for size in multiplied)


def _forget(made: Sequence[Node], node: Node, graph: Graph) -> None:
    """Drop what was learnt of values that are not made after all."""
    for each in made:
        for name in (*each.inputs[1:], *each.outputs):
            if name not in {*node.inputs, *node.outputs} and graph.producer(name) is None:
                graph.initializers.pop(name, None)
                graph.values.pop(name, None)


class _Writer:
    """Writes the nodes that replace an Einsum."""

    def __init__(self, node: Node, graph: Graph, opset: int) -> None:
        self._node, self._graph, self._opset = node, graph, opset
        self._type = graph.node_arg(node.outputs[0]).type
        self._made: list[Node] = []

    def nodes(self, plan: _Plan) -> list[Node]:
        """The nodes; values between them are entered in the graph."""
        if len(plan.operands) == 1:
            self._transposed(plan.operands[0], plan.output, always=True)
        elif plan.inner:
            self._transposed(self._split(plan, self._matrices(plan)), plan.output)
        else:
            self._elements(plan)
        last = self._made[-1]
        self._graph.values.pop(last.outputs[0])
        last.outputs = list(self._node.outputs)
        return self._made

    def pair(self, operands: Sequence[_Operand], output: str) -> list[Node]:
        """Einsum of the first two of several operands, and of its result and the others."""
        first, second, *others = operands
        needed = "".join([*(operand.labels for operand in others), output])
        labels = "".join(dict.fromkeys(label for label in first.labels + second.labels if label in needed))
        shape = tuple(
            _broadcast([operand.size(label) for operand in (first, second) if label in operand.labels]) for label in labels
        )
        inner = self._add(
            "Einsum", [first.name, second.name], labels, shape, equation=f"{first.labels},{second.labels}->{labels}"
        )
        remaining = [inner, *others]
        outer = new_node(
            "Einsum",
            [operand.name for operand in remaining],
            self._node.outputs,
            self._opset,
            name=self._node.name,
            equation=f"{','.join(operand.labels for operand in remaining)}->{output}",
        )
        return [*self._made, outer]

    def _add(self, op_type: str, inputs: Sequence[str], labels: str, shape: Shape, **attributes: object) -> _Operand:
        name = unused_name(self._graph, f"{self._node.outputs[0]}/{op_type}_{len(self._made)}")
        self._graph.set_value(NodeArg(name, self._type, shape))
        self._made.append(new_node(op_type, inputs, [name], self._opset, name=self._node.name, **attributes))
        return _Operand(name, labels, shape)

    def _constant(self, name: str, numbers: Sequence[int]) -> str:
        return add_constant(self._graph, f"{self._node.outputs[0]}/{name}", ArrayTensor(np.array(numbers, np.int64)))

    def _transposed(self, operand: _Operand, labels: str, *, always: bool = False) -> _Operand:
        if operand.labels == labels and not always:
            return operand
        perm = [operand.labels.index(label) for label in labels]
        return self._add("Transpose", [operand.name], labels, operand.sizes(labels), perm=perm)

    def _axes(self, op_type: str, operand: _Operand, axes: Sequence[int], labels: str, shape: Shape) -> _Operand:
        """Squeeze or Unsqueeze."""
        if self._opset < _FIRST_WITH_AXES_AS_INPUT:
            return self._add(op_type, [operand.name], labels, shape, axes=list(axes))
        return self._add(op_type, [operand.name, self._constant("axes", axes)], labels, shape)

    def _reshaped(self, operand: _Operand, target: Sequence[int], labels: str, shape: Shape) -> _Operand:
        return self._add("Reshape", [operand.name, self._constant("target", target)], labels, shape)

    def _elements(self, plan: _Plan) -> None:
        """The product of elements, each operand with dimensions of one element where it lacks labels."""
        sides = []
        for operand in plan.operands:
            own = "".join(label for label in plan.output if label in operand.labels)
            transposed = self._transposed(operand, own)
            first = plan.output.index(own[0]) if own else len(plan.output)
            axes = [position - first for position in range(first, len(plan.output)) if plan.output[position] not in own]
            if axes:
                labels = plan.output[first:]
                shape = tuple(operand.size(label) if label in own else 1 for label in labels)
                transposed = self._axes("Unsqueeze", transposed, axes, labels, shape)
            sides.append(transposed)
        shape = tuple(
            _broadcast([operand.size(label) for operand in plan.operands if label in operand.labels]) for label in plan.output
        )
        self._add("Mul", [side.name for side in sides], plan.output, shape)

    def _matrices(self, plan: _Plan) -> _Operand:
        """The product of matrices: leading labels of the left, shared ones, the left's last, and the right's as one (``n``)."""
        left, right = plan.operands
        shared, inner = plan.shared, plan.inner
        rows, columns = plan.own(0), plan.own(1)
        leading, row = (rows[:-1], rows[-1:]) if shared else (rows, "")
        transposed = self._transposed(left, leading + shared + row + inner)
        before = len(leading + shared + row)
        length: Size = left.size(inner[0]) if len(inner) == 1 else _product(left.sizes(inner))
        if len(inner) > 1:
            target = [*[0] * before, int(length or 0)]
            transposed = self._reshaped(transposed, target, leading + shared + row + "?", (*transposed.shape[:before], length))
        if shared and not row:
            position = len(shared)
            shape = (*transposed.shape[:position], 1, transposed.shape[-1])
            transposed = self._axes("Unsqueeze", transposed, [position], f"{shared}1?", shape)
        other, width = self._right(right, shared, inner, columns, length)
        batch = tuple(_broadcast([left.size(label), right.size(label)]) for label in shared)
        ends = (width,) if columns or shared else ()
        last = (left.size(row) if row else 1,) if shared else ()
        return self._add("MatMul", [transposed.name, other.name], "", (*left.sizes(leading), *batch, *last, *ends))

    def _right(self, right: _Operand, shared: str, inner: str, columns: str, length: Size) -> tuple[_Operand, Size]:
        """The right operand as matrices, or as a vector, and how many columns it has."""
        transposed = self._transposed(right, shared + inner + columns)
        width: Size = _product(right.sizes(columns)) if len(columns) != 1 else right.size(columns)
        shape = (*right.sizes(shared), length, *((width,) if columns else ()))
        if len(inner) > 1 or len(columns) > 1:
            sizes = [*([0] if len(inner) == 1 else [int(length or 0)])]
            if len(columns) == 1 and len(inner) > 1:
                sizes.append(width if isinstance(width, int) else -1)
            elif columns:
                sizes.append(int(width or 0))
            transposed = self._reshaped(transposed, [*[0] * len(shared), *sizes], "", shape)
        if shared and not columns:
            transposed = self._axes("Unsqueeze", transposed, [len(shape)], "", (*shape, 1))
        return transposed, width

    def _split(self, plan: _Plan, product: _Operand) -> _Operand:
        """The product with all its labels."""
        _, right = plan.operands
        shared, rows, columns = plan.shared, plan.own(0), plan.own(1)
        leading, row = (rows[:-1], rows[-1:]) if shared else (rows, "")
        labels = leading + shared + row
        sizes = product.shape[: len(labels)]
        axes = [len(shared)] if shared and not row else []
        if shared and not columns:
            axes.append(len(product.shape) - 1)
        if axes:
            ends = (product.shape[-1],) if columns else ()
            product = self._axes("Squeeze", product, axes, labels + columns, (*sizes, *ends))
        if len(columns) > 1:
            widths = right.sizes(columns)
            target = [*[0] * len(labels), *(int(size) for size in widths if isinstance(size, int))]
            product = self._reshaped(product, target, labels + columns, (*sizes, *widths))
        return _Operand(product.name, labels + columns, product.shape)


def _product(sizes: Sequence[Size]) -> int:
    result = 1
    for size in sizes:
        result *= size if isinstance(size, int) else 1
    return result


def _broadcast(sizes: Sequence[Size]) -> Size:
    """What sizes of one label come to."""
    found = {size for size in sizes if size != 1}
    return 1 if not found else found.pop() if len(found) == 1 else None
