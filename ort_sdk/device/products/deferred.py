"""What a product's kernel makes, with the expression of it that is computed as it is written."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ort_sdk.api import TensorElementType
from ort_sdk.device.context import DeviceContext
from ort_sdk.device.expressions import views
from ort_sdk.device.expressions.nodes import Deferred, Node, Strided

from .epilogue import can_take, first_column_axis

__all__ = ["DeferredRows"]


class DeferredRows(Deferred):
    """Rows that a kernel writes, with an epilogue.

    Args:
        context: of the device.
        shape: of the value.
        element_type: of the value, as the kernel accumulates it.
        columns: elements of a row: those of some trailing axes.
        operands: what the kernel reads.
    """

    __slots__ = ("_columns", "_operands", "context")

    def __init__(
        self,
        context: DeviceContext,
        shape: tuple[int, ...],
        element_type: TensorElementType,
        columns: int,
        operands: Sequence[Strided],
    ) -> None:
        super().__init__(shape, element_type)
        self.context, self._columns, self._operands = context, columns, operands
        for operand in operands:
            operand.held.note_reader(self)

    def launch(self, value: Deferred, output: Strided, root: Node | None) -> None:
        """Queue the kernel.

        Args:
            value: what the expression names it by.
            output: dense.
            root: expression of the value to be written; None for itself.
        """
        raise NotImplementedError

    def produce(self, output: Strided, epilogue: Node | None) -> None:
        self.produce_as(self, output, epilogue)

    def produce_as(self, value: Deferred, output: Strided, root: Node | None) -> None:
        """Queue the kernel for a value of the same elements, which may have another shape."""
        if can_take(value, value if root is None else root, output, self._columns, self._operands):
            self.launch(value, output, root)
            return
        value.computed = self.context.new(value.shape, value.element_type)
        self.launch(value, value.computed, None)
        self.context.write(value if root is None else root, output)

    def reshaped(self, shape: tuple[int, ...]) -> Deferred | None:
        return None if first_column_axis(shape, self._columns) is None else _Reshaped(self, shape)


class _Reshaped(Deferred):
    __slots__ = ("_base",)

    def __init__(self, base: DeferredRows, shape: tuple[int, ...]) -> None:
        super().__init__(shape, base.element_type)
        self._base = base
        base.note_reader(self)

    def is_awaited(self, inside: Collection[int]) -> bool:
        return super().is_awaited(inside) or self._base.is_awaited({id(self)})

    def reshaped(self, shape: tuple[int, ...]) -> Deferred | None:
        return self._base.reshaped(shape) if self.computed is None else None

    def produce(self, output: Strided, epilogue: Node | None) -> None:
        base = self._base
        if base.computed is None and base.is_awaited({id(self)}):
            base.context.materialise(base)
        if base.computed is None:
            base.produce_as(self, output, epilogue)
            return
        self.computed = views.reshaped(base.computed, self.shape)
        base.context.write(self if epilogue is None else epilogue, output)
