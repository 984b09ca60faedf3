"""Results of row kernels that run when somebody needs them, with what comes after them computed as they write."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

from ort_sdk.api import TensorElementType
from ort_sdk.device import arithmetic
from ort_sdk.device.array import DeviceArray
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.element_types import HALF_TYPES
from ort_sdk.device.expressions.functions import DEAR
from ort_sdk.device.expressions.nodes import MOST_LEAVES, Apply, Deferred, Node, Strided, element_count, resolved
from ort_sdk.device.expressions.writer import leaves_of

from .launch import RowWork, row_launch
from .program import RowProgram

__all__ = ["RowResult", "row_result", "row_result_with_values"]


class RowResult(Deferred):
    """What a row program writes in its elements' places.

    Args:
        context: of the device.
        program: has a result.
        source: elements.
        axes: that make a row, ascending.
        numbers: the program's.
        companion: array that is an expression of the elements, or they themselves: it is written on the way if it is needed.
    """

    __slots__ = ("_axes", "_companion", "_context", "_numbers", "_program", "_source")

    def __init__(
        self,
        context: DeviceContext,
        program: RowProgram,
        source: Node,
        axes: Sequence[int],
        numbers: Mapping[str, float],
        companion: DeviceArray | None = None,
    ) -> None:
        super().__init__(source.shape, source.element_type)
        self._context, self._program, self._source = context, program, source
        self._axes, self._numbers = axes, numbers
        self._companion = None if companion is None else weakref.ref(companion)
        for leaf in leaves_of([source]):
            if leaf.memory is not None:
                leaf.memory.note_reader(self)

    def produce(self, output: Strided, epilogue: Node | None) -> None:
        self.launch(output, epilogue, ())

    def launch(self, output: Strided, epilogue: Node | None, rows: Sequence[tuple[str, Strided]]) -> None:
        """Queue the kernel.

        Args:
            output: see ``produce``.
            epilogue: see ``produce``.
            rows: arrays for the program's values.
        """
        context, device, dialect = self._context, self._context.device, self._context.launcher.dialect
        root = self._root(epilogue)
        if output.memory in {leaf.memory for leaf in leaves_of([root] if epilogue is None else [root, epilogue])}:
            copy = context.new(output.shape, output.element_type)
            self.launch(copy, epilogue, rows)
            context.write(copy, output)
            return
        kept = self._kept(root)
        after = None if epilogue is None else (self, epilogue)
        work = RowWork(self._program, root, self._axes, self._numbers, rows, output, after, kept)
        context.submit(row_launch(work, work.form(device, dialect), device))
        if kept is not None and isinstance(kept[0], Apply):
            kept[0].computed = kept[1]

    def _kept(self, root: Node) -> tuple[Node, Strided] | None:
        """An expression of the elements that others may read again, with memory for it."""
        companion = None if self._companion is None else self._companion()
        node = root if companion is None else resolved(companion.node)
        if not isinstance(node, Apply) or not isinstance(root, Apply) or (node is root and not _is_read_again(root)):
            return None
        return node, self._context.new(node.shape, node.element_type)

    def _root(self, epilogue: Node | None) -> Node:
        """The elements as the kernel had better read them: as an expression, or from memory."""
        context = self._context
        root = context.ready(self._source)
        leaves = leaves_of([root] if epilogue is None else [root, epilogue])
        count = element_count([root.shape[axis] for axis in self._axes])
        is_kept = count * 4 <= context.device.local_bytes // 2
        if len(leaves) > MOST_LEAVES or (isinstance(root, Apply) and root.cost >= DEAR and not is_kept):
            return context.materialise(root)
        if not context.device.is_cpu or all(leaf.is_dense for leaf in leaves_of([root])):
            return root
        space = RowWork(self._program, root, self._axes).space()
        return root if space.is_dense_along or space.is_dense_across else context.dense(root)


def _is_read_again(root: Apply) -> bool:
    return root.owner is not None and root.owner() is not None


def row_result(
    x: DeviceArray,
    program: RowProgram,
    axes: Sequence[int],
    numbers: Mapping[str, float] | None = None,
    companion: DeviceArray | None = None,
) -> DeviceArray:
    """What a program writes for an array with elements, float32 for a narrower type; see ``RowResult``."""
    source = _widened(x)
    return x.made(RowResult(x.context, program, source.node, sorted(axes), numbers or {}, companion))


def row_result_with_values(
    x: DeviceArray,
    program: RowProgram,
    axes: Sequence[int],
    numbers: Mapping[str, float] | None = None,
    companion: DeviceArray | None = None,
) -> tuple[DeviceArray, ...]:
    """The same, computed now, and the program's values of each row, whose reduced axes have size 1."""
    source, context = _widened(x), x.context
    result = RowResult(context, program, source.node, sorted(axes), numbers or {}, companion)
    output = context.new(x.shape, source.element_type)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    values = [context.new(shape, source.element_type) for _ in program.values]
    result.launch(output, None, list(zip(program.values, values, strict=True)))
    return x.made(output), *(x.made(each) for each in values)


def _widened(x: DeviceArray) -> DeviceArray:
    return arithmetic.cast(x, TensorElementType.FLOAT) if x.element_type in HALF_TYPES else x
