"""Products of stacks of matrices: the value, and the form that a device computes it in."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from ort_sdk.api import TensorElementType
from ort_sdk.device import arithmetic
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import HALF_TYPES
from ort_sdk.device.expressions import views
from ort_sdk.device.expressions.index_space import merged_axes
from ort_sdk.device.expressions.nodes import Apply, Constant, Deferred, Node, Strided, element_count, resolved

from .constants import is_of_constants, materialised, packed_values
from .deferred import DeferredRows
from .fastest import Forms, submit_fastest
from .operands import Matrices
from .panels import PANEL, multiply_panels, panel_forms
from .plain import multiply_plainly
from .tiles import multiply_tiles, tile_forms
from .vectors import MOST_ROWS, PREFERRED_ROWS, multiply_vectors
from .whole_numbers import FLOAT32_EXACT, largest_magnitude, narrowest_type

__all__ = ["Product", "product_of"]

FLOAT, DOUBLE, INT32 = TensorElementType.FLOAT, TensorElementType.DOUBLE, TensorElementType.INT32
_SMALL = frozenset({TensorElementType.INT8, TensorElementType.UINT8, TensorElementType.INT16})
"""Integers that kernels widen as they load."""
FEWEST_EXACT_TERMS = 64
"""Terms that must sum up exactly in float32 for it to be used: float64 is as fast with fewer."""


class Product(DeferredRows):
    """A stack of products.

    Args:
        context: of the device.
        matrices: that are multiplied.
        shape: (..., m, n).
        element_type: of the result.
    """

    __slots__ = ("_matrices",)

    def __init__(
        self, context: DeviceContext, matrices: Matrices, shape: tuple[int, ...], element_type: TensorElementType
    ) -> None:
        super().__init__(context, shape, element_type, matrices.n, (matrices.a, matrices.b))
        self._matrices = matrices

    def launch(self, value: Deferred, output: Strided, root: Node | None) -> None:
        context, matrices = self.context, self._matrices
        if self.element_type is not FLOAT and not matrices.exact_terms:
            multiply_plainly(context, value, matrices, output, root)
            return
        forms = self._panels(value, output, root) if context.computes_panels else self._groups(value, output, root)
        submit_fastest(context, matrices.tuning_key("product"), forms, output, [matrices.b.held])

    def _panels(self, value: Deferred, output: Strided, root: Node | None) -> Forms:
        multiply = partial(multiply_panels, self.context, value, self._matrices, output, root)
        return {form.name: partial(multiply, form) for form in panel_forms(self._matrices)}

    def _groups(self, value: Deferred, output: Strided, root: Node | None) -> Forms:
        context, matrices = self.context, self._matrices
        by_tiles = partial(multiply_tiles, context, value, matrices, output, root)
        tiles = {form.name: partial(by_tiles, form) for form in tile_forms(context.device, matrices)}
        if matrices.exact_terms or matrices.m > MOST_ROWS:
            return tiles
        by_vectors = partial(multiply_vectors, context, value, matrices, output, root)
        is_preferred = matrices.m <= PREFERRED_ROWS
        return {"vectors": by_vectors, **tiles} if is_preferred else {**tiles, "vectors": by_vectors}


def product_of(context: DeviceContext, left: Node, right: Node, element_type: TensorElementType) -> Node:
    """The product of (..., m, k) and (..., k, n), whose leading axes broadcast.

    Args:
        context: of the device.
        left: of the element type.
        right: likewise.
        element_type: of both and of the result; float16 and bfloat16 are accumulated in float32.
    """
    batch = arithmetic.broadcast_shape((left.shape[:-2], right.shape[:-2]))
    (m, k), n = left.shape[-2:], right.shape[-1]
    shape = (*batch, m, n)
    if 0 in shape or k == 0:
        return Constant(0, shape, element_type)
    scaled = _scaled_columns(right) if element_type is FLOAT else None
    if scaled is not None:
        numbers, scale = scaled
        return arithmetic.applied(context, "multiply", (product_of(context, left, numbers, element_type), scale), FLOAT)
    accumulated = FLOAT if element_type in HALF_TYPES else element_type
    terms = _exact_terms(left, right, k) if element_type is DOUBLE else 0
    if terms:
        accumulated = INT32
        left, right = arithmetic.cast_node(context, left, FLOAT), arithmetic.cast_node(context, right, FLOAT)
    is_panels = context.computes_panels and accumulated in {FLOAT, INT32}
    a = _loaded(context, left, widens=is_panels)
    packs_values = is_panels and len(right.shape) == 2 and _as_stored(right, HALF_TYPES) is None
    b = packed_values(context, right, PANEL) if packs_values else None
    if b is None:
        matrices = Matrices(*_stacked(context, a, _loaded(context, right, widens=False), batch), terms)
    else:
        # the panels' memory with the shape of the matrix
        a, b = _stacked(context, a, b.view((k, n), (1, k), 0), batch, is_packed=True)
        matrices = Matrices(a, b, terms, is_packed=True)
    product = Product(context, matrices, shape, accumulated)
    return product if accumulated is element_type else arithmetic.cast_node(context, product, element_type)


def _scaled_columns(node: Node) -> tuple[Node, Node] | None:
    """Small whole numbers of constants and the scales of their columns, whose product a matrix is: sums are scaled then."""
    node = resolved(node)
    if not isinstance(node, Apply) or node.function.name != "multiply":
        return None
    first, second = (resolved(operand) for operand in node.operands)
    for numbers, scale in ((first, second), (second, first)):
        is_of_columns = scale.shape[-2:-1] in ((), (1,))
        if is_of_columns and numbers.shape == node.shape and is_of_constants(numbers) and narrowest_type(numbers) is not None:
            return numbers, scale
    return None


def _exact_terms(left: Node, right: Node, k: int) -> int:
    """How many products of whole numbers are summed in float32 at a time, for exact sums as int32; 0 where that is not so."""
    first, second = largest_magnitude(left), largest_magnitude(right)
    if first is None or second is None or first * second * k >= 1 << 31:
        return 0
    terms = (FLOAT32_EXACT - 1) // max(first * second, 1)
    return terms if terms >= FEWEST_EXACT_TERMS else 0


def _loaded(context: DeviceContext, node: Node, *, widens: bool) -> Strided:
    """A matrix in memory; where the kernel widens float16 and small integers as it loads, those behind a cast to float32."""
    node = resolved(node)
    narrow = narrowest_type(node)
    if widens:
        node = arithmetic.cast_node(context, node, FLOAT)
        # a constant of small integers is widened in each run, since what is kept would take four times the memory
        return context.materialise(node) if narrow is not None else materialised(context, node)
    stored = _as_stored(node, HALF_TYPES | _SMALL)
    if stored is not None:
        return context.materialise(stored)
    is_kept = isinstance(node, Apply) and is_of_constants(node)
    return materialised(context, arithmetic.cast_node(context, node, narrow) if is_kept and narrow is not None else node)


def _as_stored(node: Node, types: Collection[TensorElementType]) -> Node | None:
    """What a cast to float32 widens, if it has one of some types."""
    node = resolved(node)
    if not isinstance(node, Apply) or node.function.name != "cast" or node.element_type is not FLOAT:
        return None
    operand = resolved(node.operands[0])
    return operand if operand.element_type in types and operand.shape == node.shape else None


def _stacked(
    context: DeviceContext, a: Strided, b: Strided, batch: tuple[int, ...], *, is_packed: bool = False
) -> tuple[Strided, Strided]:
    """Both with two batch axes; copied where their own do not merge to as many. A stack times one matrix is one product."""
    a, b = views.broadcast(a, (*batch, *a.shape[-2:])), views.broadcast(b, (*batch, *b.shape[-2:]))
    sizes, (a_steps, b_steps) = merged_axes(batch, [a.strides[:-2], b.strides[:-2]])
    if len(sizes) > 2:
        a = context.dense(a)
        sizes, a_steps, b_steps = [element_count(batch)], [element_count(a.shape[-2:])], [0]
        if not is_packed:
            b = context.dense(b)
            b_steps = [element_count(b.shape[-2:])]
    if len(sizes) == 1:
        sizes, a_steps, b_steps = [1, *sizes], [0, *a_steps], [0, *b_steps]
    return (
        Strided(a.memory, (*sizes, *a.shape[-2:]), a.element_type, (*a_steps, *a.strides[-2:]), a.offset),
        Strided(b.memory, (*sizes, *b.shape[-2:]), b.element_type, (*b_steps, *b.strides[-2:]), b.offset),
    )
