"""Epilogues: the expression of a product's elements that its kernel writes instead of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ort_sdk.device.element_types import COMPUTE
from ort_sdk.device.expressions.elementwise import stored_value
from ort_sdk.device.expressions.index_space import broadcast_strides, decoded, merged_axes
from ort_sdk.device.expressions.nodes import Deferred, Node, Strided, element_count, resolved
from ort_sdk.device.expressions.parameters import Parameters
from ort_sdk.device.expressions.writer import ExpressionWriter, leaves_of, reads_vectors, stored

__all__ = ["Epilogue", "can_take", "first_column_axis"]

ACCUMULATOR = "accumulator"
"""Variable that has the product's element, or vector of elements, where an epilogue's statements begin."""


def can_take(source: Deferred, root: Node, output: Strided, columns: int, operands: Sequence[Strided]) -> bool:
    """Whether a kernel that writes rows of some columns can compute an expression as it writes.

    Args:
        source: the product, a leaf of the expression.
        root: the expression, of the product's shape.
        output: where it is written to.
        columns: of a row; they are the elements of some of the trailing axes.
        operands: what the kernel reads as long as it writes.
    """
    memories = {id(each.memory) for each in (*operands, *leaves_of([root]))}
    return id(output.memory) not in memories and first_column_axis(source.shape, columns) is not None


def first_column_axis(shape: Sequence[int], columns: int) -> int | None:
    """The first of the trailing axes that have so many elements together; None where none do."""
    return next((axis for axis in range(len(shape), -1, -1) if math.prod(shape[axis:]) == columns), None)


class Epilogue:
    """Statements that write a row's elements.

    Args:
        source: what the kernel computes.
        root: expression of it that ``can_take`` allows; None for the value itself.
        output: dense, of the shape of the source.
        columns: of a row.
        parameters: of the kernel; gets what the expression reads, and the output.
    """

    def __init__(self, source: Deferred, root: Node | None, output: Strided, columns: int, parameters: Parameters) -> None:
        self._root = None if root is None else resolved(stored_value(root))
        self._parameters, self._columns, self.element_type = parameters, columns, output.element_type
        leaves = [] if self._root is None else leaves_of([self._root])
        shape = output.shape
        split = first_column_axis(shape, columns) or 0
        strides = [broadcast_strides(leaf, shape) for leaf in leaves]
        self._outer, outer = merged_axes(shape[:split], [own[:split] for own in strides])
        self._inner, inner = merged_axes(shape[split:], [own[split:] for own in strides])
        steps = {id(leaf): [*outer[i], *inner[i]] for i, leaf in enumerate(leaves)}
        roots = [] if self._root is None else [self._root]
        self._writer = ExpressionWriter(roots, steps, parameters, {id(source): ACCUMULATOR})
        self._target = parameters.memory(output.held, output.element_type, written=True)
        self._width = parameters.index(columns, folds=False)
        self._accumulator = COMPUTE[source.element_type]
        self.takes_vectors = len(self._inner) == 1 and reads_vectors([source if root is None else root])
        self.rows = element_count(shape) // max(columns, 1)

    @staticmethod
    def leaves(root: Node | None) -> list[Strided]:
        """The arrays that an expression reads."""
        return [] if root is None else leaves_of([root])

    def row(self, row: str) -> list[str]:
        """Statements in front of those of a row's elements.

        Args:
            row: text of the number of the row, over all leading axes.
        """
        return ["index_t e_row = " + row + ";", *_decoded("e_row", self._outer, "e_r", self._parameters)]

    def element(self, column: str, value: str) -> list[str]:
        """Statements that write one element of the row.

        Args:
            column: text of its column.
            value: text of what the kernel has computed.
        """
        lines = [f"index_t e_column = {column};", *_decoded("e_column", self._inner, "e_c", self._parameters)]
        return self._written([*lines, f"{self._accumulator} {ACCUMULATOR} = {value};"], vector=False)

    def vector(self, column: str, value: str) -> list[str]:
        """Statements that write ``VW`` elements of the row; only if it takes vectors."""
        lines = [f"index_t e_column = {column}, e_c0 = e_column;", f"f32v {ACCUMULATOR} = {value};"]
        return self._written(lines, vector=True)

    def _written(self, lines: list[str], *, vector: bool) -> list[str]:
        indices = [*(f"e_r{d}" for d in range(len(self._outer))), *(f"e_c{d}" for d in range(len(self._inner)))]
        body, names = self._writer.lines(indices, "e_v", vector=vector)
        value = ACCUMULATOR if self._root is None else names[id(self._root)]
        position = f"e_row * {self._width} + e_column"
        return ["{", *lines, *body, stored(self._target, position, value, self.element_type, vector=vector), "}"]


def _decoded(flat: str, sizes: Sequence[int], name: str, parameters: Parameters) -> list[str]:
    names = [f"{name}{axis}" for axis in range(len(sizes))]
    return decoded(flat, names, [parameters.index(size) if axis else "" for axis, size in enumerate(sizes)])
