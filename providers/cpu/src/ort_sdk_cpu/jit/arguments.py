"""Arguments of compiled tasks: one class of named, typed fields per task, used by launches and by the compiled code.

::

    class LogSoftmax(TaskArguments, module="normalization.log_softmax", tasks=("log_softmax",)):
        x: Pointer
        \"\"\"float32 (rows, width).\"\"\"
        out: Pointer
        rows: int
        width: int

        def extents(self) -> Extents:
            yield reads(self.x, self.rows * self.width * FLOAT)
            yield writes(self.out, self.rows * self.width * FLOAT)

A launch fills it in: ``TaskCall(MODULE, "log_softmax", LogSoftmax(x, out, rows, width))``; or sets addresses later, by field:
``call.point(LogSoftmax.x, array)``. The task ``log_softmax(args: LogSoftmax, thread, threads)`` reads ``args.rows``, which
becomes one load from the record, as for a field of a C structure. ``extents`` yields how many bytes the task accesses at each
address: it is called with positions in place of addresses and Python integers in place of sizes, so that no product of them
overflows.

The class of a task of ``<family>/compiled/<name>.py`` is in ``<family>/arguments/<name>.py``, and needs no numba. It is not a
``dataclass`` or ``NamedTuple``: to create such a class takes 100 us and more, which every process would spend before its first
result.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeAlias, dataclass_transform

from .extents.declaration import Declaration, Extents, declare_task

__all__ = ["Counter", "Field", "NullablePointer", "Operand", "Pointer", "TaskArguments"]

Pointer: TypeAlias = Any
"""An address. A launch passes an array, None for none, or 0 for one that is pointed later; tasks get an integer."""
NullablePointer: TypeAlias = Any
"""An address that may be 0 and that other extents depend on: in ``extents`` it has the attribute ``is_given``."""
Counter: TypeAlias = int
"""A word that threads change atomically: a task gets its address."""


class Operand(int):
    """In place of an address: index of an array among those that a writer is called with."""


class Field(int):
    """A field; its value is its position among the words of the record."""

    name: str
    kind: str
    """Its annotation: ``Pointer``, ``NullablePointer``, ``Counter``, ``int`` or ``float``."""

    @classmethod
    def of(cls, position: int, name: str, kind: str) -> Field:
        """A field.

        Args:
            position: index of its word.
            name: of the field.
            kind: its annotation.
        """
        made = cls(position)
        made.name, made.kind = name, kind
        return made

    def __get__(self, instance: TaskArguments | None, _owner: type) -> Any:
        """The word of an instance; of the class, the field."""
        return self if instance is None else instance.words[self]


class _Group:
    """The fields of a nested class, contiguous in the record.

    Args:
        first: position of the first of them.
        arguments: the nested class.
    """

    def __init__(self, first: int, arguments: type[TaskArguments]) -> None:
        self.first, self.arguments = first, arguments
        for name, field in arguments.own_fields.items():
            vars(self)[name] = _shifted(field, first)

    def __get__(self, instance: TaskArguments | None, _owner: type) -> Any:
        """The words of an instance as the nested class; of the class, the fields as attributes."""
        if instance is None:
            return self
        return self.arguments.of_words(instance.words[self.first : self.first + len(self.arguments.fields)])


def _shifted(field: Field | _Group, offset: int) -> Field | _Group:
    """The same field at a later position."""
    if isinstance(field, _Group):
        return _Group(field.first + offset, field.arguments)
    return Field.of(field + offset, field.name, field.kind)


_KINDS = frozenset({"Pointer", "NullablePointer", "Counter", "int", "float"})


@dataclass_transform()
class TaskArguments:
    """Base of the classes of arguments. Instances are created from values in the order of the fields, or by name.

    A field whose type is another class of arguments stands for all fields of that class: ``Flash.q.row`` is a position,
    ``args.q.row`` the word there.

    Args of a subclass:
        module: ``<family>.<name>`` of the compiled tasks that take it; empty for a class that is nested in others only.
        tasks: names of these tasks.
    """

    __slots__ = ("words",)

    fields: ClassVar[tuple[Field, ...]] = ()
    """One for each word of the record."""
    own_fields: ClassVar[dict[str, Field | _Group]] = {}
    """Name → field, or the fields of a nested class."""
    kinds: ClassVar[str] = ""
    """``q`` for each word that is an address or an integer, ``f`` for each float32."""
    defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, module: str = "", tasks: Iterable[str] = ()) -> None:
        cls.own_fields, cls.defaults = dict(cls.own_fields), dict(cls.defaults)
        fields = list(cls.fields)
        for name, kind in inspect.get_annotations(cls).items():
            if kind.startswith("ClassVar"):
                continue
            if name in cls.__dict__:
                cls.defaults[name] = cls.__dict__[name]
            field = _field(cls, len(fields), name, kind)
            cls.own_fields[name] = field
            fields += [field] if isinstance(field, Field) else _flattened(field, name)
            setattr(cls, name, field)
        cls.fields = tuple(fields)
        cls.kinds = "".join("f" if field.kind == "float" else "q" for field in fields)
        for task in tasks:
            declare_task(module, task, declaration_of_arguments(f"{module}.{task}", cls))

    def __init__(self, *values: Any, **named: Any) -> None:
        if named or len(values) != len(self.fields) or len(self.own_fields) != len(self.fields):
            values = self._in_order(values, named)
        self.words: Sequence[Any] = values

    def _in_order(self, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        by_name = {**self.defaults, **dict(zip(self.own_fields, values, strict=False)), **named}
        if by_name.keys() != self.own_fields.keys() or len(values) > len(self.own_fields):
            missing, unknown = sorted(self.own_fields.keys() - by_name.keys()), sorted(by_name.keys() - self.own_fields.keys())
            raise TypeError(
                f"{type(self).__name__} takes {len(self.own_fields)} arguments and was given {len(values)} by position and "
                f"{len(named)} by name; missing: {missing}; unknown: {unknown}."
            )
        words: list[Any] = []
        for name in self.own_fields:
            value = by_name[name]
            words += value.words if isinstance(value, TaskArguments) else (value,)
        if len(words) != len(self.fields):
            raise TypeError(f"{type(self).__name__} has {len(self.fields)} words and was given {len(words)}.")
        return tuple(words)

    @classmethod
    def of_words(cls, words: Sequence[Any]) -> Any:
        """An instance over words that are in the fields' order already."""
        made = cls.__new__(cls)
        made.words = words
        return made

    def operands(self) -> list[tuple[int, int]]:
        """(position, index of the array) of each ``Operand``."""
        return [(position, int(word)) for position, word in enumerate(self.words) if isinstance(word, Operand)]

    def without_operands(self) -> Any:
        """The same arguments with 0, for an address that is pointed later, in place of each ``Operand``."""
        return self.of_words(tuple(0 if isinstance(word, Operand) else word for word in self.words))

    def extents(self, *_: Any, **__: Any) -> Extents:
        """The memory that the task accesses at each address; with a keyword parameter ``threads`` if it depends on their number.

        Raises:
            ExtentError: the task does not support such sizes.
        """
        raise NotImplementedError(f"{type(self).__name__} is nested in other arguments; it has no extents by itself.")


def _field(cls: type[TaskArguments], position: int, name: str, kind: str) -> Field | _Group:
    if kind in _KINDS:
        return Field.of(position, name, kind)
    other = vars(sys.modules[cls.__module__]).get(kind)
    if not isinstance(other, type) or not issubclass(other, TaskArguments):
        raise TypeError(f"{cls.__name__}.{name} is of type {kind}; a field is one of {sorted(_KINDS)} or a class of arguments.")
    return _Group(position, other)


def _flattened(group: _Group, name: str) -> list[Field]:
    return [Field.of(group.first + field, f"{name}.{field.name}", field.kind) for field in group.arguments.fields]


def declaration_of_arguments(name: str, arguments: type[TaskArguments]) -> Declaration:
    """The declaration of a task with arguments of a class.

    Args:
        name: of the task, for messages.
        arguments: the class.
    """

    def extents(*words: Any, **threads: int) -> Extents:
        return arguments.extents(arguments.of_words(words), **threads)

    fields = arguments.fields
    return Declaration(
        name,
        [field.name for field in fields],
        tuple(field for field in fields if field.kind.endswith("Pointer")),
        extents,
        deciding=tuple(field for field in fields if field.kind == "NullablePointer"),
        kinds=arguments.kinds,
        has_threads=bool(arguments.extents.__code__.co_kwonlyargcount),
    )
