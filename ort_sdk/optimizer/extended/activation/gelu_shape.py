"""The two parts of a Gelu written out: the product x * (1 + f(g)) / 2, and the polynomial g of x."""

from __future__ import annotations

from collections.abc import Mapping

from ort_sdk.graph import Node
from ort_sdk.optimizer.pattern import GraphMatcher, Match

__all__ = ["match_gelu"]

LARGEST_DEGREE = 3
DEPTH_LIMIT = 8

Polynomial = dict[int, float]
"""Degree → coefficient."""


def match_gelu(matcher: GraphMatcher, core: Node, argument: Mapping[int, float]) -> tuple[str, Match] | None:
    """Look for x * (1 + f(g(x))) / 2 around the node that computes f, the factors in any order.

    Args:
        matcher: the graph.
        core: the node of f: Erf or Tanh.
        argument: coefficients that g must have.

    Returns:
        (x, match), or None.
    """
    shifted = matcher.reader(core.outputs[0], "Add")
    operand = matcher.scalar_operand(shifted) if shifted is not None else None
    if shifted is None or operand is None or operand[0] != core.outputs[0] or operand[1] != 1.0:
        return None
    product = _match_product(matcher, shifted)
    if product is None:
        return None
    x, last, members = product
    reader = _PolynomialReader(matcher, x)
    found = reader.read(core.inputs[0])
    if found is None or not _is_near(matcher, x, found, argument):
        return None
    return x, Match(last, core, shifted, *members, *reader.nodes)


def _is_near(matcher: GraphMatcher, x: str, found: Polynomial, expected: Mapping[int, float]) -> bool:
    return found.keys() == expected.keys() and all(matcher.is_near(found[degree], expected[degree], x) for degree in expected)


def _match_product(matcher: GraphMatcher, shifted: Node) -> tuple[str, Node, list[Node]] | None:
    """(x, last node, the other nodes) of the product of x, 1/2 and what ``shifted`` makes."""
    value = shifted.outputs[0]
    first = matcher.reader(value, "Mul", "Div")
    if first is None or first.inputs == [value, value]:
        return None
    if _halves(matcher, first, value):
        second = matcher.reader(first.outputs[0], "Mul")
        other = _other(second, first.outputs[0]) if second is not None else None
        return None if second is None or other is None else (other, second, [first])
    other = _other(first, value) if first.op_type == "Mul" else None
    if other is None:
        return None
    half = matcher.sole_maker(other, "Mul", "Div")
    if half is not None and (x := _halved(matcher, half)) is not None:
        return x, first, [half]
    second = matcher.reader(first.outputs[0], "Mul", "Div")
    return (other, second, [first]) if second is not None and _halves(matcher, second, first.outputs[0]) else None


def _other(node: Node, name: str) -> str | None:
    """The operand beside ``name``; None if both are it."""
    first, second = node.inputs
    if first == second:
        return None
    return second if first == name else first


def _halved(matcher: GraphMatcher, node: Node) -> str | None:
    """The value a node halves."""
    if node.op_type == "Div":
        return node.inputs[0] if matcher.scalar(node.inputs[1], node.inputs[0]) == 2.0 else None
    operand = matcher.scalar_operand(node)
    return operand[0] if operand is not None and operand[1] == 0.5 else None


def _halves(matcher: GraphMatcher, node: Node, name: str) -> bool:
    return _halved(matcher, node) == name


class _PolynomialReader:
    """Reads a value as a polynomial of another, through Add, Sub, Mul, Div and Pow with constants."""

    def __init__(self, matcher: GraphMatcher, x: str) -> None:
        self._matcher = matcher
        self._x = x
        self.nodes: list[Node] = []
        """Nodes between the two values."""

    def read(self, name: str, depth: int = 0) -> Polynomial | None:
        """Coefficients of a value that are not 0; None if it is no polynomial of small degree."""
        if name == self._x:
            return {1: 1.0}
        constant = self._matcher.scalar(name, self._x)
        if constant is not None:
            return {0: constant}
        node = self._matcher.maker(name, "Add", "Sub", "Mul", "Div", "Pow") if depth < DEPTH_LIMIT else None
        if node is None:
            return None
        self.nodes.append(node)
        left, right = (self.read(operand, depth + 1) for operand in node.inputs)
        return None if left is None or right is None else _combine(node.op_type, left, right)


def _combine(op_type: str, left: Polynomial, right: Polynomial) -> Polynomial | None:
    if op_type == "Mul":
        return _product(left, right)
    if op_type in ("Add", "Sub"):
        sign = 1.0 if op_type == "Add" else -1.0
        total = {degree: left.get(degree, 0.0) + sign * right.get(degree, 0.0) for degree in left.keys() | right.keys()}
        return {degree: value for degree, value in total.items() if value}
    number = right.get(0) if right.keys() <= {0} else None
    if not number:
        return None
    if op_type == "Div":
        return {degree: value / number for degree, value in left.items()}
    return _power(left, int(number)) if number in (2.0, 3.0) else None


def _product(left: Polynomial, right: Polynomial) -> Polynomial | None:
    result: Polynomial = {}
    for first, a in left.items():
        for second, b in right.items():
            result[first + second] = result.get(first + second, 0.0) + a * b
    return result if max(result, default=0) <= LARGEST_DEGREE else None


def _power(base: Polynomial, exponent: int) -> Polynomial | None:
    result: Polynomial | None = base
    for _ in range(exponent - 1):
        result = None if result is None else _product(result, base)
    return result
