"""Arrays of a device, as the operators see them: the array API standard's operators over expressions."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import TensorElementType

from .context import DeviceContext
from .expressions.nodes import Apply, Deferred, Node, Strided

__all__ = ["NODE_OPERATIONS", "OPERATIONS", "DeviceArray"]

OPERATIONS: dict[str, Callable[..., DeviceArray]] = {}
"""What arrays' operators do, by name. The modules that define it import this one, and put it here."""
NODE_OPERATIONS: dict[str, Callable[..., Any]] = {}
"""The same of operations on arrays' values."""


class DeviceArray:
    """An array in a device's memory, or one that is computed when a kernel needs it.

    Args:
        context: computes it.
        node: its value.
    """

    __slots__ = ("__weakref__", "context", "node")
    # NumPy's scalars leave arithmetic with arrays to the arrays.
    __array_ufunc__ = None

    def __init__(self, context: DeviceContext, node: Node) -> None:
        self.context, self.node = context, node
        if isinstance(node, (Apply, Deferred)) and node.owner is None:
            node.owner = weakref.ref(self)

    def made(self, node: Node) -> DeviceArray:
        """An array of the same device."""
        return DeviceArray(self.context, node)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.node.shape

    @property
    def element_type(self) -> TensorElementType:
        """ONNX's name of the type."""
        return self.node.element_type

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.node.element_type.numpy_dtype

    @property
    def ndim(self) -> int:
        return len(self.node.shape)

    @property
    def size(self) -> int:
        return math.prod(self.node.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def data_ptr(self) -> int:
        """Address of the first element in the device's memory.

        Raises:
            AttributeError: memory of the device has no addresses.
        """
        address_of = getattr(self.context.launcher, "address_of", None)
        if address_of is None:
            raise AttributeError("data_ptr")
        return int(address_of(self.dense().held))

    @property
    def device(self) -> DeviceContext:
        """Where it is."""
        return self.context

    @property
    def mT(self) -> DeviceArray:  # noqa: N802 - the standard's name
        axes = [*range(self.ndim - 2), self.ndim - 1, self.ndim - 2]
        return self.made(NODE_OPERATIONS["permuted"](self.context, self.node, axes))

    @property
    def T(self) -> DeviceArray:  # noqa: N802 - the standard's name
        return self.made(NODE_OPERATIONS["permuted"](self.context, self.node, list(reversed(range(self.ndim)))))

    def strided(self) -> Strided:
        """Its elements in memory, computed if need be."""
        return self.context.materialise(self.node)

    def dense(self) -> Strided:
        """Its elements in memory row by row."""
        node = self.node
        # asked for each feed and result of each run
        return node if type(node) is Strided and node.is_dense else self.context.dense(node)

    def __getitem__(self, key: Any) -> DeviceArray:
        return self.made(NODE_OPERATIONS["item"](self.context, self.node, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        NODE_OPERATIONS["set_item"](self, key, value)

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self.context.download(self.node))

    def __int__(self) -> int:
        return int(self.context.download(self.node))

    def __index__(self) -> int:
        return int(self.context.download(self.node))

    def __float__(self) -> float:
        return float(self.context.download(self.node))

    def __repr__(self) -> str:
        return f"DeviceArray({list(self.shape)}, {self.dtype})"

    def __add__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("add", self, other)

    def __radd__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("add", other, self)

    def __sub__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("subtract", self, other)

    def __rsub__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("subtract", other, self)

    def __mul__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("multiply", self, other)

    def __rmul__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("multiply", other, self)

    def __truediv__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("divide", self, other)

    def __rtruediv__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("divide", other, self)

    def __floordiv__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("floor_divide", other, self)

    def __mod__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("remainder", self, other)

    def __rmod__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("remainder", other, self)

    def __pow__(self, other: Any) -> DeviceArray:
        return OPERATIONS["power"](self, other)

    def __rpow__(self, other: Any) -> DeviceArray:
        return OPERATIONS["power"](other, self)

    def __and__(self, other: Any) -> DeviceArray:
        return OPERATIONS["bitwise"]("and", self, other)

    def __or__(self, other: Any) -> DeviceArray:
        return OPERATIONS["bitwise"]("or", self, other)

    def __xor__(self, other: Any) -> DeviceArray:
        return OPERATIONS["bitwise"]("xor", self, other)

    def __lshift__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("bitwise_left_shift", self, other)

    def __rshift__(self, other: Any) -> DeviceArray:
        return OPERATIONS["binary"]("bitwise_right_shift", self, other)

    def __neg__(self) -> DeviceArray:
        return OPERATIONS["unary"]("negative", self)

    def __pos__(self) -> DeviceArray:
        return self

    def __abs__(self) -> DeviceArray:
        return OPERATIONS["unary"]("abs", self)

    def __invert__(self) -> DeviceArray:
        return OPERATIONS["invert"](self)

    def __lt__(self, other: Any) -> DeviceArray:
        return OPERATIONS["compare"]("less", self, other)

    def __le__(self, other: Any) -> DeviceArray:
        return OPERATIONS["compare"]("less_equal", self, other)

    def __gt__(self, other: Any) -> DeviceArray:
        return OPERATIONS["compare"]("greater", self, other)

    def __ge__(self, other: Any) -> DeviceArray:
        return OPERATIONS["compare"]("greater_equal", self, other)

    def __eq__(self, other: object) -> DeviceArray:  # type: ignore[override]
        return OPERATIONS["compare"]("equal", self, other)

    def __ne__(self, other: object) -> DeviceArray:  # type: ignore[override]
        return OPERATIONS["compare"]("not_equal", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __matmul__(self, other: DeviceArray) -> DeviceArray:
        return OPERATIONS["matmul"](self, other)
