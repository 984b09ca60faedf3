"""Which arguments the type constraints of kernels speak of, by tables that can be made, read from files, merged and compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping

from ort_sdk.api import (
    Fail,
    InvalidArgument,
    KernelRegistry,
    NodeView,
    OperatorSchema,
    operator_names,
    schema_domains,
    schema_versions,
)
from ort_sdk.api.data_classes import dataclass
from ort_sdk.graph import Model
from ort_sdk.graph.type_strings import Argument, OpIdentifier, TypeStrings, resolve_type_strings, type_strings_of
from ort_sdk.loader.model_file import load_type_strings

__all__ = ["KernelTypeStrResolver", "resolver_of"]

OperatorName = NodeView | OpIdentifier | str
"""A node, or the operator of one by itself, as text ``domain:op_type:since_version``."""

_FEW_VERSIONS = 8


@dataclass(frozen=True, slots=True)
class _Table:
    """Entries of one origin."""

    source: str
    find: Callable[[str, str, int], TypeStrings | None]
    """(domain, op_type, since_version) → type strings."""
    operators: Callable[[], Iterable[OpIdentifier]]
    by_schemas: bool
    """Whether it is made from schemas, so that kernels registered for the operators were checked against it."""


def _table_of(source: str, entries: Mapping[tuple[str, str, int], TypeStrings], *, by_schemas: bool) -> _Table:
    known = {OpIdentifier(*operator): type_strings for operator, type_strings in entries.items()}
    return _Table(source, lambda *operator: known.get(OpIdentifier(*operator)), lambda: known, by_schemas)


def _schema_operators() -> Iterator[OpIdentifier]:
    for domain in schema_domains():
        for op_type in operator_names(domain):
            for version in schema_versions(op_type, domain):
                yield OpIdentifier(domain, op_type, version)


_SCHEMA_TABLE = _Table("operator schemas", resolve_type_strings, _schema_operators, by_schemas=True)


class KernelTypeStrResolver:
    """Says for a node which inputs and outputs a type string of a kernel speaks of (ORT's ``KernelTypeStrResolver``).

    A type string is the name of a type constraint of the operator (``T``), or of a formal parameter with a fixed type. Look-up
    uses nothing else of an operator, so that kernels match where no schema is known.

    Two resolvers are equal if they say the same of the same operators, whatever it comes from. They are not changed once they
    are made.

    Args:
        entries: op id (``domain:op_type:since_version``, ``:Relu:14``) → type string → formal parameters, each as
            ``("input", index)`` or ``("output", index)``.
        source: where they come from, for messages.

    Raises:
        Fail: a key is no op id.
        InvalidArgument: a type string covers no argument.
    """

    __slots__ = ("_found", "_tables")

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, entries: Mapping[str, TypeStrings] | None = None, source: str = "given entries") -> None:
        known: dict[tuple[str, str, int], TypeStrings] = {}
        for name, type_strings in (entries or {}).items():
            empty = [each for each, arguments in type_strings.items() if not arguments]
            if empty or not type_strings:
                raise InvalidArgument(
                    f"the entry of {source} for op id {name} needs type strings with arguments, got {type_strings}"
                )
            known[OpIdentifier.parse(name)] = type_strings
        self._tables: tuple[_Table, ...] = (_table_of(source, known, by_schemas=False),) if known else ()
        self._found: dict[tuple[str, str, int], TypeStrings | None] = {}

    @classmethod
    def _of(cls, tables: Iterable[_Table]) -> KernelTypeStrResolver:
        made = cls()
        made._tables = tuple(dict.fromkeys(tables))
        return made

    @classmethod
    def from_schemas(
        cls, schemas: Iterable[OperatorSchema] | None = None, source: str = "operator schemas"
    ) -> KernelTypeStrResolver:
        """By formal parameters.

        Args:
            schemas: of the operators, as ``find_schema`` or ``KernelRegistry.declared_operators`` gives them; all that the
                built-in table has if left out. That table is read one operator at a time, when it is asked for.
            source: where they come from, for messages.
        """
        if schemas is None:
            return cls._of([_SCHEMA_TABLE])
        entries = {(each.domain, each.op_type, each.since_version): type_strings_of(each) for each in schemas}
        return cls._of([_table_of(source, entries, by_schemas=True)] if entries else [])

    @classmethod
    def from_ort_format(cls, path_or_bytes: str | os.PathLike[str] | bytes) -> KernelTypeStrResolver:
        """By what a file in ORT format says of its operators; the rest of the file is not read.

        Args:
            path_or_bytes: path of the file, or its content.

        Raises:
            NoSuchFile: no such file.
            Fail: the file is none in ORT format, is damaged, or is of a version below 5, which says nothing of operators.
        """
        return cls(load_type_strings(path_or_bytes), _file_label(None if isinstance(path_or_bytes, bytes) else path_or_bytes))

    def merge(self, other: KernelTypeStrResolver) -> KernelTypeStrResolver:
        """Both together; of an operator that both know, this one's entry counts."""
        return self._of((*self._tables, *other._tables))

    def resolve(self, node: OperatorName, type_string: str) -> tuple[Argument, ...]:
        """Formal parameters that a type string covers: kind and index of each, inputs first.

        Args:
            node: a node, or the op id of its operator.
            type_string: name of a type constraint, or of a formal parameter with a fixed type.

        Raises:
            Fail: the operator is unknown, or has no such type string; the text says what there is.
        """
        operator = _operator_of(node)
        type_strings = self.type_strings(operator)
        if type_strings is None:
            raise Fail(f"Failed to find op_id: {operator}. {self._neighbours(operator)}")
        if type_string not in type_strings:
            raise Fail(
                f"Failed to find args for kernel type string '{type_string}' of {operator}: {self.source(operator)} has "
                f"{', '.join(type_strings)}. Use the name of a type constraint, or of a formal parameter with a fixed type."
            )
        return type_strings[type_string]

    def type_strings(self, node: OperatorName) -> TypeStrings | None:
        """Type string → formal parameters it covers; None if the operator is unknown. Not to be changed.

        Args:
            node: a node, or the op id of its operator.
        """
        key = (node.domain, node.op_type, node.since_version) if not isinstance(node, str) else OpIdentifier.parse(node)
        try:
            return self._found[key]
        except KeyError:
            found = next((each for table in self._tables if (each := table.find(*key)) is not None), None)
            self._found[key] = found
            return found

    def source(self, node: OperatorName) -> str | None:
        """Where the entry of an operator comes from: ``operator schemas``, a file, a provider's declaration; None without one.

        Args:
            node: a node, or the op id of its operator.
        """
        found = next(self._tables_with(_operator_of(node)), None)
        return None if found is None else found.source

    def missing(self, node: OperatorName, type_string: str) -> str | None:
        """What is wrong if a kernel constrains a type string that the entry of an operator lacks.

        Returns:
            None if nothing is: a kernel for several versions may constrain what only some of them have.
        """
        operator = _operator_of(node)
        first, *others = self._tables_with(operator)
        if first.by_schemas or (others and not any(type_string in (table.find(*operator) or ()) for table in others)):
            return None
        has = ", ".join(first.find(*operator) or ())
        also = next((f"; {table.source}: {', '.join(table.find(*operator) or ())}" for table in others), "")
        return f"{first.source} has no type string {type_string} for {operator}, it has {has}{also}"

    def op_ids(self) -> tuple[str, ...]:
        """All operators it knows, sorted. With the built-in table these are some thousand."""
        return tuple(map(str, sorted(self._operators())))

    def __contains__(self, node: object) -> bool:
        return self.type_strings(node) is not None  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KernelTypeStrResolver):
            return NotImplemented
        if self._tables == other._tables:
            return True
        operators = self._operators()
        return operators == other._operators() and all(
            self.type_strings(operator) == other.type_strings(operator) for operator in operators
        )

    def __repr__(self) -> str:
        return f"KernelTypeStrResolver({' + '.join(table.source for table in self._tables) or 'empty'})"

    def __str__(self) -> str:
        return "\n".join(f"{operator}  {self.describe(operator)}" for operator in sorted(self._operators()))

    def describe(self, node: OperatorName) -> str:
        """The entry of an operator as text: ``T: input 0, output 0; axes: input 1``."""
        entries = (self.type_strings(node) or {}).items()
        return "; ".join(f"{name}: {', '.join(f'{kind} {index}' for kind, index in arguments)}" for name, arguments in entries)

    def _operators(self) -> set[OpIdentifier]:
        return {operator for table in self._tables for operator in table.operators()}

    def _tables_with(self, operator: OpIdentifier) -> Iterator[_Table]:
        return (table for table in self._tables if table.find(*operator) is not None)

    def _neighbours(self, operator: OpIdentifier) -> str:
        sources = " and ".join(table.source for table in self._tables) or "an empty resolver"
        named = [each for each in sorted(self._operators()) if each.op_type == operator.op_type]
        if not named:
            return f"It was looked up in {sources}, which know no operator {operator.op_type}."
        shown = ", ".join(map(str, named[:_FEW_VERSIONS]))
        return (
            f"It was looked up in {sources}, where {operator.op_type} has {shown}{', …' if len(named) > _FEW_VERSIONS else ''}."
        )


def _operator_of(node: OperatorName) -> OpIdentifier:
    return OpIdentifier.parse(node) if isinstance(node, str) else OpIdentifier(node.domain, node.op_type, node.since_version)


def _file_label(path: str | os.PathLike[str] | None) -> str:
    return "the model" if path is None else f"file '{os.fsdecode(path)}'"


_BUILT_IN = KernelTypeStrResolver.from_schemas()


def resolver_of(registry: KernelRegistry | None, model: Model | None = None) -> KernelTypeStrResolver:
    """What kernels of one registry are matched by: the model's own table, the registry's declarations, the built-in table.

    Args:
        registry: a provider's kernels; None if it has none.
        model: a model whose file describes its operators.
    """
    declared = () if registry is None else registry.declared_operators()
    from_file = {} if model is None else model.type_strings
    if not declared and not from_file:
        return _BUILT_IN
    own = KernelTypeStrResolver(from_file, _file_label(None if model is None else model.path))
    source = "" if registry is None else f"declaration of {registry.provider_name}"
    return own.merge(KernelTypeStrResolver.from_schemas(declared, source)).merge(_BUILT_IN)
