"""What an array's elements are: in memory, the same everywhere, an expression of others, or what a kernel is going to make.

Arithmetic on arrays makes expressions; nothing is computed before a kernel needs the elements. So a chain of element-wise
operators is one kernel, casts of stored types cost nothing, and kernels that read rows compute expressions as they load.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Sequence

from ort_sdk.api import ExtentError, TensorElementType
from ort_sdk.device.launches import Memory

from .functions import Function

__all__ = [
    "MOST_LEAVES",
    "MOST_NODES",
    "Apply",
    "Constant",
    "Deferred",
    "Node",
    "Strided",
    "dense_strides",
    "element_count",
    "item_bytes",
    "resolved",
]

MOST_NODES = 64
"""Functions of an expression that becomes one kernel; longer ones are computed in parts, or compiling would take seconds."""
MOST_LEAVES = 14
"""Arrays that a kernel reads: drivers must take 1024 bytes of arguments, some take no more."""


class Node:
    """A value; never changes but for where it has been computed to."""

    __slots__ = ("__weakref__", "element_type", "shape")
    shape: tuple[int, ...]
    element_type: TensorElementType


class Strided(Node):
    """Elements in memory, or, without memory, the numbers ``offset + sum(index * stride)`` themselves.

    Raises:
        ExtentError: an element is outside the memory.
    """

    __slots__ = ("is_dense", "memory", "offset", "strides")

    def __init__(
        self,
        memory: Memory | None,
        shape: tuple[int, ...],
        element_type: TensorElementType,
        strides: tuple[int, ...] | None = None,
        offset: int = 0,
    ) -> None:
        self.memory, self.shape, self.element_type = memory, shape, element_type
        self.strides = dense_strides(shape) if strides is None else strides
        self.offset = offset
        self.is_dense = memory is not None and not offset and (strides is None or _are_dense(shape, strides))
        """Whether it is in memory from the start, row by row."""
        if memory is not None:
            _check_extent(self)

    @property
    def held(self) -> Memory:
        """The memory of elements that are in some.

        Raises:
            TypeError: they are numbers without memory.
        """
        if self.memory is None:
            raise TypeError("counted numbers have no memory: materialise them first")
        return self.memory

    def view(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Strided:
        """Other elements of the same memory."""
        return Strided(self.memory, shape, self.element_type, strides, offset)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of an array row by row."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _are_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _check_extent(array: Strided) -> None:
    if 0 in array.shape or array.memory is None:
        return
    low = high = array.offset
    for size, stride in zip(array.shape, array.strides, strict=True):
        reach = (size - 1) * stride
        if reach < 0:
            low += reach
        else:
            high += reach
    itemsize = item_bytes(array.element_type)
    if low < 0 or (high + 1) * itemsize > array.memory.nbytes:
        raise ExtentError(
            f"an array of shape {list(array.shape)} with strides {list(array.strides)} from element {array.offset} on"
            f" takes elements {low} to {high} of {itemsize} bytes, in memory of {array.memory.nbytes} bytes"
        )


def item_bytes(element_type: TensorElementType) -> int:
    """Bytes of an element in memory."""
    return element_type.numpy_dtype.itemsize


class Constant(Node):
    """The same number everywhere."""

    __slots__ = ("value",)

    def __init__(self, value: float, shape: tuple[int, ...], element_type: TensorElementType) -> None:
        self.value, self.shape, self.element_type = value, shape, element_type


class Apply(Node):
    """A function of other values, each of which broadcasts to its shape."""

    __slots__ = ("computed", "cost", "function", "leaves", "operands", "owner", "size")

    def __init__(
        self, function: Function, operands: tuple[Node, ...], shape: tuple[int, ...], element_type: TensorElementType
    ) -> None:
        self.function, self.operands, self.shape, self.element_type = function, operands, shape, element_type
        self.computed: Strided | None = None
        """Where it is in memory, once it has been computed."""
        self.owner: weakref.ref[object] | None = None
        """The array whose value it is: if it is alive, others may read it again."""
        self.size, self.leaves, self.cost = 1, 0, function.cost
        for operand in operands:
            if isinstance(operand, Apply):
                self.size += operand.size
                self.leaves += operand.leaves
                self.cost += operand.cost
            else:
                self.leaves += 1


class Deferred(Node):
    """What a kernel makes that has not run yet, and can compute a function of its elements as it writes them."""

    __slots__ = ("computed", "owner", "readers")

    def __init__(self, shape: tuple[int, ...], element_type: TensorElementType) -> None:
        self.shape, self.element_type = shape, element_type
        self.computed: Strided | None = None
        self.owner: weakref.ref[object] | None = None
        self.readers: list[weakref.ref[Apply | Deferred]] = []
        """Values that are made of it."""

    def note_reader(self, reader: Apply | Deferred) -> None:
        """Remember a value that is made of it."""
        self.readers.append(weakref.ref(reader))

    def is_awaited(self, inside: Collection[int]) -> bool:
        """Whether the value itself is wanted, by its array or by values other than some.

        Args:
            inside: ``id`` of values that are made of it right now.
        """
        if self.owner is not None and self.owner() is not None:
            return True
        found = [reader() for reader in self.readers]
        return any(each is not None and each.computed is None and id(each) not in inside for each in found)

    def reshaped(self, shape: tuple[int, ...]) -> Deferred | None:
        """The same elements in the same order under another shape, made by the same kernel; None where it cannot do that."""
        return None

    def produce(self, output: Strided, epilogue: Node | None) -> None:
        """Queue the kernel.

        Args:
            output: dense, of the shape of the value, or of the epilogue's, which is the same.
            epilogue: expression to be written instead of the value, which is a leaf of it.
        """
        raise NotImplementedError


def resolved(node: Node) -> Node:
    """The value in memory, if it has been computed."""
    if isinstance(node, (Apply, Deferred)) and node.computed is not None:
        return node.computed
    return node


def element_count(shape: Sequence[int]) -> int:
    """Elements of an array."""
    return math.prod(shape)
