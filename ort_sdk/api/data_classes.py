"""``dataclass`` and ``NamedTuple`` of the standard library, at a part of what it costs there to make a class.

The standard library compiles up to eight functions for each class when its module is imported, which is a third of the time a
process takes to its first session. Here they are shared by all classes, but for ``__init__``, which is made when it is first
wanted, of code that is compiled once for all frozen classes with as many fields, and for all others with fields of the same
kinds. Type checkers see the standard library's own decorator; so do ``dataclasses.replace``, ``fields``, ``asdict`` and
``is_dataclass``, and classes made with it may inherit from ours.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, field
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["NamedTuple", "dataclass", "field"]

_Class = TypeVar("_Class", bound=type)

if TYPE_CHECKING:
    from dataclasses import dataclass
    from typing import NamedTuple
else:

    def dataclass(*, slots: bool, frozen: bool = False, eq: bool = True) -> Callable[[_Class], _Class]:
        """Decorator that makes a data class, as ``dataclasses.dataclass`` does.

        Args:
            slots: True; required for type checkers.
            frozen: whether to refuse to set and delete attributes.
            eq: whether to compare, and hash if it is frozen, by the fields.

        Raises:
            TypeError: ``slots`` is False, or the class inherits fields.
        """
        if not slots:
            raise TypeError("a data class without slots was asked for; take dataclasses.dataclass for it")
        return lambda cls: _with_slots(cls, frozen=frozen, eq=eq)

    class _NamedTupleType(type):
        """Makes named tuples of classes that are written as those of ``typing``, which would compile the text of each type."""

        def __new__(cls, name: str, _bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            types = namespace.pop("__annotations__", {})
            defaults = [namespace.pop(field_name) for field_name in types if field_name in namespace]
            module = namespace.pop("__module__")
            made = namedtuple(name, types, defaults=defaults, module=module)  # noqa: PYI024 - the one that typing makes its own of
            made.__annotations__ = types
            for attribute, value in namespace.items():
                setattr(made, attribute, value)
            return made

    NamedTuple = type.__new__(_NamedTupleType, "NamedTuple", (), {"__doc__": "Base of a class of named tuples."})


def _with_slots(cls: Any, *, frozen: bool, eq: bool) -> Any:
    if hasattr(cls, "__match_args__"):
        raise TypeError(f"{cls.__name__} inherits fields of a data class; take dataclasses.dataclass for it")
    namespace = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    types = namespace.get("__annotations__", {})
    fields = {name: _as_field(namespace.pop(name, MISSING)) for name, text in types.items() if "ClassVar" not in str(text)}
    compared = [name for name, each in fields.items() if each.compare]
    hashed = [name for name, each in fields.items() if (each.compare if each.hash is None else each.hash)]
    namespace |= {
        "__slots__": tuple(fields),
        "__match_args__": tuple(fields),
        "__shown_fields__": tuple(name for name, each in fields.items() if each.repr),
        "__compared_fields__": _values_of(compared),
        "__hashed_fields__": _values_of(hashed),
        "__dataclass_fields__": _StandardAttribute(fields, frozen=frozen, eq=eq),
        "__dataclass_params__": _StandardAttribute(fields, frozen=frozen, eq=eq),
    }
    namespace.setdefault("__init__", _Initializer(fields, types, frozen=frozen))
    namespace.setdefault("__repr__", _repr)
    if frozen:
        namespace |= _FROZEN
    if eq:
        namespace.setdefault("__eq__", _is_equal)
        if namespace.get("__hash__") is None:
            namespace["__hash__"] = _hash if frozen else None
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


def _as_field(default: Any) -> Field[Any]:
    return default if isinstance(default, Field) else field(default=default)


def _values_of(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Gives the values of some fields of an object. It is called on classes' attribute, so it must not be a method."""
    if len(names) > 1:
        return attrgetter(*names)
    return staticmethod(lambda instance: tuple(getattr(instance, name) for name in names))


def _types_of(cls: type, fields: dict[str, Field[Any]]) -> dict[str, Any]:
    types = inspect.get_annotations(cls)
    return {name: types[name] for name in fields}


class _Made:
    """Default of a parameter whose default value is made in each call."""

    def __repr__(self) -> str:
        return "<made in each call>"


_MADE = _Made()


class _StandardAttribute:
    """An attribute by which the standard library knows a data class; it is made when the library first looks for it."""

    def __init__(self, fields: dict[str, Field[Any]], *, frozen: bool, eq: bool) -> None:
        self._fields = fields
        self._options = {"frozen": frozen, "eq": eq}

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        types = _types_of(self._owner, self._fields)
        # With a text of its own, since the library would spend a millisecond to make one.
        bare = type(self._owner.__name__, (), {"__doc__": "Fields.", "__annotations__": types, **self._fields})
        options = self._options if self._name == "__dataclass_params__" else {"eq": False}
        made: Any = dataclasses.dataclass(bare, init=False, repr=False, **options)
        value = getattr(made, self._name)
        setattr(self._owner, self._name, value)
        return value


class _Initializer:
    """``__init__`` of a class until it is first wanted."""

    def __init__(self, fields: dict[str, Field[Any]], types: Mapping[str, Any], *, frozen: bool) -> None:
        self._fields, self._types = fields, types
        self._frozen = frozen

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner = owner

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        function = self._compiled()
        setattr(self._owner, "__init__", function)  # noqa: B010 - this object gives way to what it stands for
        return function.__get__(instance, owner)

    def _compiled(self) -> FunctionType:
        names: dict[str, Any] = {"_made": _MADE, "__name__": self._owner.__module__}
        kinds, defaults = "", []
        for number, (name, each) in enumerate(self._fields.items()):
            make = each.default_factory
            if make is not MISSING:
                defaults.append(_MADE)
            elif each.default is not MISSING:
                defaults.append(each.default)
            if self._frozen:
                # What is called to store a value tells kinds apart; the code does not.
                store = getattr(self._owner, name).__set__
                names[f"_set_{number}"] = store if make is MISSING else _making(store, make)
            elif make is not MISSING:
                names[f"_make_{number}"] = make
            kinds += "-" if make is MISSING or self._frozen else "m"
        code = _initializer_code(kinds, frozen=self._frozen, is_followed=hasattr(self._owner, "__post_init__"))
        real = {f"_field_{number}": name for number, name in enumerate(self._fields)}
        code = code.replace(
            co_varnames=tuple(real.get(name, name) for name in code.co_varnames),
            co_names=tuple(real.get(name, name) for name in code.co_names),
        )
        function = FunctionType(code, names, "__init__", tuple(defaults))
        function.__annotations__ = {name: self._types[name] for name in self._fields} | {"return": None}
        function.__qualname__ = f"{self._owner.__qualname__}.__init__"
        return function


def _making(store: Callable[[Any, Any], None], make: Callable[[], Any]) -> Callable[[Any, Any], None]:
    """Stores a value, or, in the place of the default, one that it makes."""

    def store_or_make(instance: Any, value: Any) -> None:
        store(instance, make() if value is _MADE else value)

    return store_or_make


@functools.cache
def _initializer_code(kinds: str, *, frozen: bool, is_followed: bool) -> CodeType:
    """Code of ``__init__`` with stand-ins for names of fields, which classes with fields of the same kinds share.

    Args:
        kinds: of the fields: ``m`` makes its default in each call here, ``-`` does not.
        frozen: whether attributes must be set by their descriptors.
        is_followed: whether ``__post_init__`` comes after.
    """
    parameters, body = ["self"], []
    for number, kind in enumerate(kinds):
        name = f"_field_{number}"
        parameters.append(name)
        value = f"_make_{number}() if {name} is _made else {name}" if kind == "m" else name
        body.append(f"_set_{number}(self, {value})" if frozen else f"self.{name} = {value}")
    if is_followed:
        body.append("self.__post_init__()")
    made: dict[str, Any] = {}
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body or ["pass"]), made)  # noqa: S102 - of numbers only
    function: FunctionType = made["__init__"]
    return function.__code__


@recursive_repr()
def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__shown_fields__)})"


def _is_equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self.__compared_fields__(self) == self.__compared_fields__(other)


def _hash(self: Any) -> int:
    return hash(self.__hashed_fields__(self))


def _set_attribute(self: Any, name: str, value: Any) -> None:
    _refuse_change(self, name, "assign to")
    object.__setattr__(self, name, value)


def _delete_attribute(self: Any, name: str) -> None:
    _refuse_change(self, name, "delete")
    object.__delattr__(self, name)


def _refuse_change(instance: Any, name: str, what: str) -> None:
    """Attributes may change that a class without slots, which inherits from a frozen one, adds to its fields."""
    if name in instance.__match_args__ or not hasattr(instance, "__dict__"):
        raise FrozenInstanceError(f"cannot {what} field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__match_args__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__match_args__, state, strict=True):
        object.__setattr__(self, name, value)


_FROZEN = {
    "__setattr__": _set_attribute,
    "__delattr__": _delete_attribute,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
"""What frozen classes have beside others: pickle and copy cannot set attributes one by one."""
