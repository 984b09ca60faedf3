"""Numba type of task arguments: ``args.rows`` in a task is one load from its record, ``args.failed = 1`` one store."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, lower_setattr_generic, register_model

from .arguments import Field, TaskArguments

__all__ = ["ArgumentsType", "address_of", "task_signature"]

_WORD_BYTES = 8


class ArgumentsType(types.Type):  # type: ignore[misc]
    """Type of the address of a record whose words are the fields of a class.

    Args:
        arguments: the class.
    """

    def __init__(self, arguments: type[TaskArguments]) -> None:
        self.arguments = arguments
        super().__init__(f"{arguments.__module__}.{arguments.__name__}")

    def can_convert_to(self, _context: Any, other: Any) -> Any:
        """A record converts to that of a base class, whose fields come first."""
        from numba.core.typeconv import Conversion

        is_base = isinstance(other, ArgumentsType) and issubclass(self.arguments, other.arguments)
        return Conversion.safe if is_base else None


@register_model(ArgumentsType)
class _ArgumentsModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, arguments: ArgumentsType) -> None:
        super().__init__(manager, arguments, ir.IntType(64))


@infer_getattr
class _Attributes(AttributeTemplate):  # type: ignore[misc]
    key = ArgumentsType

    def generic_resolve(self, arguments: ArgumentsType, name: str) -> Any:
        """Type of a field."""
        field = arguments.arguments.own_fields.get(name)
        if field is None:
            return None
        if not isinstance(field, Field):
            return ArgumentsType(field.arguments)
        return types.float32 if field.kind == "float" else types.intp


def _address(builder: Any, record: Any, position: int) -> Any:
    return builder.add(record, ir.Constant(record.type, position * _WORD_BYTES))


def _pointer(builder: Any, record: Any, field: Field) -> Any:
    llvm = ir.FloatType() if field.kind == "float" else ir.IntType(64)
    return builder.inttoptr(_address(builder, record, int(field)), llvm.as_pointer())


@lower_getattr_generic(ArgumentsType)  # type: ignore[untyped-decorator]
def _read(_context: Any, builder: Any, arguments: ArgumentsType, record: Any, name: str) -> Any:
    field = arguments.arguments.own_fields[name]
    if not isinstance(field, Field):
        return _address(builder, record, field.first)
    if field.kind == "Counter":
        return _address(builder, record, int(field))
    return builder.load(_pointer(builder, record, field))


@lower_setattr_generic(ArgumentsType)  # type: ignore[untyped-decorator]
def _write(context: Any, builder: Any, signature: Any, values: Any, name: str) -> None:
    record, value = values
    field = signature.args[0].arguments.own_fields[name]
    wanted = types.float32 if field.kind == "float" else types.intp
    builder.store(context.cast(builder, value, signature.args[1], wanted), _pointer(builder, record, field))


@intrinsic  # type: ignore[untyped-decorator]
def address_of(_context: Any, args: Any) -> Any:
    """In tasks: the address of a record, or of a nested class's fields in one, for micro-kernels that take addresses."""
    if not isinstance(args, ArgumentsType):
        return None
    return types.intp(args), lambda _context, _builder, _signature, values: values[0]


def task_signature(arguments: type[TaskArguments]) -> Any:
    """Numba signature of a task ``task(args, thread, threads)``.

    Args:
        arguments: class of ``args``.
    """
    return types.void(ArgumentsType(arguments), types.intp, types.intp)
