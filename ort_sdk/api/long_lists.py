"""Attributes with very many elements: lists whose elements are made when somebody reads them.

A tree ensemble has ten attributes with an element for each of a million nodes. Python objects for them take longer to make than
all the rest of a session, and nobody wants them: what computes with such an attribute makes an array of it. So the array comes
first here, and the list of it fills itself when more is asked of it than its length, one element, or an array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from .memory import HostArray

__all__ = ["MANY_ELEMENTS", "CodedList", "LongList", "NumberList", "array_of"]

MANY_ELEMENTS = 1 << 12
"""Elements from which on readers of models make long lists: below, the elements cost less than to look after them."""

_READ_WHOLE = (
    *("__add__", "__contains__", "__delitem__", "__eq__", "__ge__", "__gt__", "__iadd__", "__imul__", "__iter__", "__le__"),
    *("__lt__", "__mul__", "__ne__", "__repr__", "__reversed__", "__rmul__", "__setitem__", "append", "clear", "copy", "count"),
    *("extend", "index", "insert", "pop", "remove", "reverse", "sort"),
)
"""Methods of lists that need all elements."""


_List = TypeVar("_List", bound="LongList")


class LongList(list[Any]):
    """A list that makes its elements when they are read. Nobody changes attributes, so it stays what it was made of.

    Whoever asks as Python does gets what a list has: methods, operators, iteration, ``isinstance``. Only extensions that reach
    into a list's memory must ``read`` it, or take ``list`` of it, before.
    """

    unread: ClassVar[type[Any]]
    """Class of those whose elements are not made yet; each becomes one of this class when they are."""

    def __init__(self) -> None:
        super().__init__()
        self.__class__ = self.unread

    def read(self) -> None:
        """Make the elements, unless they are made."""
        # Threads that do so at once put equal elements in the same places.
        if isinstance(self, self.unread):
            list.__setitem__(self, slice(None), self.all_elements())
            self.__class__ = self.unread.__base__

    def size(self) -> int:
        """How many elements there are."""
        raise NotImplementedError

    def element(self, index: int) -> Any:
        """One of them; a negative index counts from the end."""
        raise NotImplementedError

    def all_elements(self) -> list[Any]:
        """All of them."""
        raise NotImplementedError

    def as_array(self) -> HostArray:
        """What NumPy would make of all of them, new."""
        raise NotImplementedError

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return list, (list(self),)


def _with_unread(cls: type[_List]) -> type[_List]:
    """Give a class of long lists that of those whose elements are not made yet."""
    methods = {name: _reads_whole(getattr(list, name)) for name in _READ_WHOLE}
    methods |= {"__len__": cls.size, "__getitem__": _item, "__radd__": _added_to, "__array__": _array}
    cls.unread = type(f"Unread{cls.__name__}", (cls,), methods)
    return cls


def _reads_whole(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        for each in arguments:  # the list itself, and what it is added to or compared with
            if isinstance(each, LongList):
                each.read()
        return method(*arguments, **named)

    return call


def _item(self: LongList, index: Any) -> Any:
    if isinstance(index, slice):
        self.read()
        return self[index]
    return self.element(operator.index(index))


def _added_to(self: LongList, other: Any) -> Any:
    self.read()
    return other + self


def _array(self: LongList, dtype: Any = None, copy: bool | None = None) -> HostArray:
    if copy is False:
        raise ValueError("an array of a list is a copy")
    found = self.as_array()
    return found if dtype is None else found.astype(dtype, copy=False)


@_with_unread
class NumberList(LongList):
    """A list of numbers, and its array for who would make one of it again.

    Args:
        array: int64 or float32, one dimension; read-only from now on.
    """

    def __init__(self, array: HostArray) -> None:
        self.array = array
        array.flags.writeable = False
        super().__init__()

    def size(self) -> int:
        """How many elements there are."""
        return self.array.size

    def element(self, index: int) -> Any:
        """One of them; a negative index counts from the end."""
        return self.array[index].item()

    def all_elements(self) -> list[Any]:
        """All of them."""
        return list(self.array.tolist())

    def as_array(self) -> HostArray:
        """What NumPy would make of all of them, new: of Python's floats it makes float64."""
        return self.array.astype(np.float64 if self.array.dtype.kind == "f" else np.int64)


@_with_unread
class CodedList(LongList):
    """A list of few different elements, each of them many times.

    Args:
        values: the different elements, each of which is there.
        codes: position among them of each element, uint8; read-only from now on.
    """

    def __init__(self, values: Sequence[Any], codes: HostArray) -> None:
        self.values, self.codes = tuple(values), codes
        codes.flags.writeable = False
        super().__init__()

    def size(self) -> int:
        """How many elements there are."""
        return self.codes.size

    def element(self, index: int) -> Any:
        """One of them; a negative index counts from the end."""
        return self.values[self.codes[index]]

    def all_elements(self) -> list[Any]:
        """All of them."""
        table = np.empty(len(self.values), object)
        table[:] = self.values
        return list(table[self.codes].tolist())

    def as_array(self) -> HostArray:
        """What NumPy would make of all of them, new."""
        return np.array(self.values)[self.codes]


def array_of(numbers: list[Any] | tuple[Any, ...]) -> HostArray:
    """The numbers of an attribute as a vector, float32 if one of them is a float, else int64."""
    if isinstance(numbers, NumberList):
        return numbers.array
    array = np.asarray(numbers)
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
