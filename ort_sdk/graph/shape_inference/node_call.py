"""What a shape rule may ask of the node it infers, and the table of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ort_sdk.api import Dimension, Shape, TensorElementType
from ort_sdk.graph import Graph, Node

__all__ = ["CONTENTS_RULES", "SHAPE_RULES", "Contents", "NodeCall", "Scope", "contents_rule", "shape_rule"]

Contents = tuple[Dimension, ...]
"""Elements of a small integer tensor of rank 0 or 1, as far as they are known."""

MAX_CONTENTS = 64
"""Longest tensor whose elements are followed."""

_INTEGERS = frozenset({TensorElementType.INT64, TensorElementType.INT32, TensorElementType.BOOL})


class Scope:
    """One graph under inference."""

    __slots__ = ("contents", "graph", "infer_body", "outer")

    def __init__(self, graph: Graph, outer: Scope | None, infer_body: Callable[[Graph, Scope], None]) -> None:
        self.graph = graph
        self.outer = outer
        self.infer_body = infer_body
        self.contents: dict[str, Contents | None] = {}

    def find_contents(self, name: str) -> Contents | None:
        """Elements of a value of this graph or of one around it."""
        if name in self.contents:
            return self.contents[name]
        tensor = self.graph.constant(name)
        if tensor is not None:
            found = _constant_contents(tensor)
        elif self.outer is not None and name not in self.graph.values:
            found = self.outer.find_contents(name)
        else:
            found = None
        self.contents[name] = found
        return found


def _constant_contents(tensor: Any) -> Contents | None:
    shape = tensor.shape
    if tensor.element_type not in _INTEGERS or len(shape) > 1 or (shape and shape[0] > MAX_CONTENTS):
        return None
    elements = tensor.numpy().reshape(-1).tolist()
    return tuple(map(int, elements))


class NodeCall:
    """A node with what is known of its inputs."""

    __slots__ = ("node", "scope", "shapes")

    def __init__(self, node: Node, scope: Scope) -> None:
        self.node = node
        self.scope = scope
        values = scope.graph.values
        self.shapes: list[Shape | None] = []
        for name in node.inputs:
            found = values.get(name)
            if found is None and name:
                found = scope.graph.node_arg(name)
            self.shapes.append(None if found is None else found.shape)

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        inputs = self.node.inputs
        return index < len(inputs) and inputs[index] != ""

    def shape(self, index: int) -> Shape | None:
        """Shape of an input; None if it is not known or the input is omitted."""
        return self.shapes[index] if index < len(self.shapes) else None

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value."""
        return self.node.attributes.get(name, default)

    def contents(self, index: int) -> Contents | None:
        """Elements of an input as far as they are known; None if not even their number is."""
        return self.scope.find_contents(self.node.inputs[index]) if self.has(index) else None

    def integers(self, index: int) -> tuple[int, ...] | None:
        """Elements of an input if all are known."""
        contents = self.contents(index)
        if contents is None:
            return None
        numbers = tuple(element for element in contents if isinstance(element, int))
        return numbers if len(numbers) == len(contents) else None

    def integer(self, index: int) -> int | None:
        """The only element of an input, if it is known."""
        found = self.integers(index)
        return found[0] if found is not None and len(found) == 1 else None

    def integers_or_attribute(self, index: int, name: str) -> tuple[int, ...] | None:
        """Numbers that older versions of an operator take as an attribute and newer ones as an input.

        Raises:
            LookupError: they are an input that is not known.
        """
        if self.has(index):
            found = self.integers(index)
            if found is None:
                raise LookupError(name)
            return found
        given = self.node.attributes.get(name)
        return None if given is None else tuple(given)


Shapes = Sequence[Shape | None] | None
_R = TypeVar("_R", bound=Callable[[NodeCall], Any])

SHAPE_RULES: dict[tuple[str, str], Callable[[NodeCall], Shapes]] = {}
"""(domain, op type) → rule: shapes of the outputs, in order; it may give fewer, or None."""

CONTENTS_RULES: dict[tuple[str, str], Callable[[NodeCall], Contents | None]] = {}
"""(domain, op type) → rule: elements of the first output."""


def shape_rule(*op_types: str, domain: str = "") -> Callable[[_R], _R]:
    """Decorator that makes a function the shape rule of operators.

    A rule may raise ``LookupError``, ``TypeError``, ``ValueError`` or ``ArithmeticError`` for what it cannot infer.
    """

    def declare(rule: _R) -> _R:
        SHAPE_RULES.update(((domain, op_type), rule) for op_type in op_types)
        return rule

    return declare


def contents_rule(*op_types: str, domain: str = "") -> Callable[[_R], _R]:
    """Decorator that makes a function the contents rule of operators."""

    def declare(rule: _R) -> _R:
        CONTENTS_RULES.update(((domain, op_type), rule) for op_type in op_types)
        return rule

    return declare
