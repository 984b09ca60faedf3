"""Kernel definitions, and the registry a provider collects them in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MappingView, MutableSet, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any, TypeVar

from .data_classes import dataclass, field
from .device import OrtMemType
from .errors import KernelRegistrationError
from .kernel import KernelFactory, KernelInfo
from .operator_schema import FormalParameter, OperatorSchema, find_schema, schema_versions

__all__ = [
    "ALL_ARGUMENTS",
    "HalfSupport",
    "KernelCreateInfo",
    "KernelDef",
    "KernelPredicate",
    "KernelRegistry",
    "KernelSource",
]

ALL_ARGUMENTS = -1
"""Index that stands for every input (or output) of a node in the memory-type tables of a ``KernelDef``."""

KernelPredicate = Callable[[KernelInfo], "str | None"]
"""Looks at rank, attributes and constant inputs before placement; returns None to accept, or the reason to decline."""


class HalfSupport(Enum):
    """What a kernel does with tensors of float16 and bfloat16.

    With all but ``NATIVE``, the host may make the kernel for a node of which such arguments are float instead: all of them,
    or some, whatever the operator's type constraints say. ``KernelInfo`` has the types of the arrays.
    """

    NATIVE = "native"
    """Arguments have the model's types."""
    WIDENED = "widened"
    """Computes in float, and rounds those outputs that are not float. Any argument may be float."""
    MOVED = "moved"
    """Hands elements on as they are, in the type they come in. Outputs are float where an input is."""


@dataclass(frozen=True, slots=True)
class KernelDef:
    """What nodes a kernel can run, after ORT's ``KernelDef``."""

    op_type: str
    since_version: int
    domain: str = ""
    end_version: int | None = None
    """Last since-version matched; None: exactly ``since_version``, since nobody knows what a later version changes."""
    type_constraints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Constraint name of the operator (or name of a formal parameter with a fixed type) → type strings allowed."""
    input_memory_types: Mapping[int, OrtMemType] = field(default_factory=dict)
    output_memory_types: Mapping[int, OrtMemType] = field(default_factory=dict)
    may_inplace: tuple[tuple[int, int], ...] = ()
    """(input, output) pairs whose buffer the host may share when the input is not used again."""
    alias: tuple[tuple[int, int], ...] = ()
    """(input, output) pairs where the output is always a view of the input (Reshape)."""
    when: KernelPredicate | None = field(default=None, compare=False)
    half_support: HalfSupport = HalfSupport.NATIVE
    hands_on_values: bool = False
    """Whether a kernel of If, Loop or Scan hands on branches' outputs, loop-carried values and states without looking at them,
    whatever arrays they are: the host then leaves them on the device where bodies make and read them. Outputs that are gathered
    over iterations are stacked as ``Subgraph.stackings`` says. Any others are NumPy's arrays for it."""

    def matches_version(self, since_version: int) -> bool:
        """ORT's rule: the start version exactly, or a closed range that contains the version."""
        if self.end_version is None:
            return since_version == self.since_version
        return self.since_version <= since_version <= self.end_version

    def version_text(self) -> str:
        """``13`` or ``11-13``, as listings show it."""
        return (
            str(self.since_version)
            if self.end_version in (None, self.since_version)
            else f"{self.since_version}-{self.end_version}"
        )

    def input_on_host(self, index: int) -> bool:
        """Whether input ``index`` is read in host memory."""
        memory_types = self.input_memory_types
        if not memory_types:
            return False
        return memory_types.get(index, memory_types.get(ALL_ARGUMENTS, OrtMemType.DEFAULT)) is not OrtMemType.DEFAULT

    def output_on_host(self, index: int) -> bool:
        """Whether output ``index`` is left in host memory."""
        memory_types = self.output_memory_types
        return memory_types.get(index, memory_types.get(ALL_ARGUMENTS, OrtMemType.DEFAULT)) is not OrtMemType.DEFAULT


@dataclass(frozen=True, slots=True)
class KernelCreateInfo:
    """A kernel definition with the factory that makes its kernels."""

    kernel_def: KernelDef
    create: KernelFactory


KernelSource = Callable[[str, str], Sequence[KernelCreateInfo]]
"""Gives the kernels of one operator on demand: ``source(domain, op_type)``."""

_F = TypeVar("_F", bound=KernelFactory)


class KernelRegistry:
    """The kernels of one provider. Built once per process and shared by sessions; not changed after it is handed out.

    Kernels registered one by one come before those of sources, in the order of registration; the first match wins.
    """

    def __init__(self, provider_name: str) -> None:
        self.provider_name = provider_name
        self._registered: dict[tuple[str, str], list[KernelCreateInfo]] = {}
        self._sources: list[tuple[KernelSource, AbstractSet[tuple[str, str]]]] = []
        self._cache: dict[tuple[str, str], tuple[KernelCreateInfo, ...]] = {}
        self._declared: dict[tuple[str, str], dict[int, OperatorSchema]] = {}
        self.matches: dict[tuple[Any, ...], tuple[KernelCreateInfo, ...]] = {}
        """What the host found for operators and types, in any session; the host's to fill."""

    def declare_operator(
        self,
        op_type: str,
        since_version: int,
        inputs: Iterable[FormalParameter],
        outputs: Iterable[FormalParameter],
        type_constraints: Mapping[str, Iterable[str]] | None = None,
        *,
        domain: str,
    ) -> OperatorSchema:
        """Declare the formal parameters of an operator that ONNX has no schema for.

        Models may then leave out the types of its outputs and be saved in ORT format, calls with wrong types or too few
        inputs are refused, and so are kernels for versions, constraints or types that the operator does not have. Attributes
        are not declared: a node may have any, and the kernel checks them.

        Args:
            op_type: the operator.
            since_version: version of the domain that the declaration holds from; one for each version that changes something.
            inputs: formal inputs in order. The type of each is the name of a constraint or a type string.
            outputs: formal outputs. The type of an output is known without running if it is an input's, or fixed.
            type_constraints: constraint name → type strings it allows.
            domain: the operator's domain. In a domain of ONNX's, only what its schemas do not describe yet can be declared.

        Returns:
            The declaration.

        Raises:
            KernelRegistrationError: it contradicts itself, ONNX's schema, another declaration of this registry, or a kernel
                that is registered already.
        """
        from .operator_declaration import declared_schema

        schema = declared_schema(op_type, since_version, domain, inputs, outputs, type_constraints or {})
        versions = self._declared.setdefault((domain, op_type), {})
        if versions.get(since_version, schema) != schema:
            raise KernelRegistrationError(
                f"{self.provider_name}: {domain or 'ai.onnx'}::{op_type}({since_version}) is declared twice, and differently"
            )
        declared = {**versions, since_version: schema}
        for registered in self._registered.get((domain, op_type), ()):
            if registered.kernel_def.matches_version(since_version):
                validate_kernel_def(registered.kernel_def, declared)
        versions[since_version] = schema
        return schema

    def declared_operators(self) -> tuple[OperatorSchema, ...]:
        """The operators declared here, in order of domain, name and version."""
        return tuple(versions[version] for _, versions in sorted(self._declared.items()) for version in sorted(versions))

    def kernel(
        self,
        op_type: str,
        since_version: int,
        type_constraints: Mapping[str, Iterable[str]] | None = None,
        *,
        domain: str = "",
        end_version: int | None = None,
        host_inputs: Iterable[int] = (),
        host_outputs: Iterable[int] = (),
        may_inplace: Iterable[tuple[int, int]] = (),
        alias: Iterable[tuple[int, int]] = (),
        when: KernelPredicate | None = None,
    ) -> Callable[[_F], _F]:
        """Decorator that registers a kernel factory.

        Args:
            op_type: ONNX operator.
            since_version: since-version of the operator's schema the kernel implements.
            type_constraints: constraint name → allowed type strings; None allows all the operator allows.
            domain: operator's domain; empty for ai.onnx.
            end_version: last since-version the kernel implements; None for ``since_version`` only.
            host_inputs: indices of inputs the kernel reads as host arrays.
            host_outputs: indices of outputs the kernel leaves as host arrays.
            may_inplace: (input, output) pairs that may share a buffer.
            alias: (input, output) pairs that always share a buffer.
            when: predicate that may decline a node before it is placed.

        Raises:
            KernelRegistrationError: the operator has no such version, constraint or type, or another kernel matches the
                same nodes.
        """
        kernel_def = KernelDef(
            op_type=op_type,
            since_version=since_version,
            domain=domain,
            end_version=end_version,
            type_constraints={name: tuple(types) for name, types in (type_constraints or {}).items()},
            input_memory_types=dict.fromkeys(host_inputs, OrtMemType.CPU_INPUT),
            output_memory_types=dict.fromkeys(host_outputs, OrtMemType.CPU_OUTPUT),
            may_inplace=tuple(may_inplace),
            alias=tuple(alias),
            when=when,
        )

        def register(create: _F) -> _F:
            self.register(kernel_def, create)
            return create

        return register

    def register(self, kernel_def: KernelDef, create: KernelFactory) -> None:
        """Add one kernel.

        Raises:
            KernelRegistrationError: see ``kernel``.
        """
        key = (kernel_def.domain, kernel_def.op_type)
        validate_kernel_def(kernel_def, self._declared.get(key, {}))
        rivals = self._registered.setdefault(key, [])
        for rival in rivals:
            if _conflicts(rival.kernel_def, kernel_def):
                raise KernelRegistrationError(
                    f"{self.provider_name}: kernel {_label(kernel_def)} conflicts with {_label(rival.kernel_def)}: "
                    "same operator, overlapping versions and types, and neither has a `when` predicate"
                )
        rivals.append(KernelCreateInfo(kernel_def, create))
        self._cache.pop(key, None)
        self.matches.clear()

    def add_source(self, source: KernelSource, operators: Iterable[tuple[str, str]]) -> None:
        """Add kernels that are made on demand.

        Args:
            source: asked at most once per operator.
            operators: (domain, op_type) pairs the source may have kernels for. A set that cannot be changed is kept, not copied.
        """
        if not isinstance(operators, AbstractSet) or isinstance(operators, MutableSet | MappingView):
            operators = frozenset(operators)
        self._sources.append((source, operators))
        self._cache.clear()
        self.matches.clear()

    def candidates(self, domain: str, op_type: str) -> tuple[KernelCreateInfo, ...]:
        """Kernels of one operator, in order of preference."""
        key = (domain, op_type)
        found = self._cache.get(key)
        if found is None:
            rows = list(self._registered.get(key, ()))
            for source, operators in self._sources:
                if key in operators:
                    rows.extend(source(domain, op_type))
            found = self._cache[key] = tuple(rows)
        return found

    def operators(self) -> tuple[tuple[str, str], ...]:
        """(domain, op_type) of every operator with a kernel, sorted."""
        names: set[tuple[str, str]] = set(self._registered)
        for _, operators in self._sources:
            names.update(operators)
        return tuple(sorted(names))


def validate_kernel_def(kernel_def: KernelDef, declared: Mapping[int, OperatorSchema] | None = None) -> None:
    """Refuse a definition that can never match, if the operator is one the schema table knows or that is declared.

    Args:
        kernel_def: the definition.
        declared: since-version → declaration of the operator.

    Raises:
        KernelRegistrationError: unknown version, constraint name, or type the constraint does not allow.
    """
    known = declared or {}
    versions = (*schema_versions(kernel_def.op_type, kernel_def.domain), *sorted(known))
    if not versions:
        return
    covered = [version for version in versions if kernel_def.matches_version(version)]
    if not covered:
        raise KernelRegistrationError(
            f"{_label(kernel_def)}: the operator has no since-version in {kernel_def.version_text()}; it has {list(versions)}"
        )
    schemas = [known.get(version) or find_schema(kernel_def.op_type, version, kernel_def.domain) for version in covered]
    for name, types in kernel_def.type_constraints.items():
        _validate_constraint(kernel_def, name, types, [schema for schema in schemas if schema is not None])


def _validate_constraint(kernel_def: KernelDef, name: str, types: Sequence[str], schemas: Sequence[OperatorSchema]) -> None:
    allowed: set[str] = set()
    known: set[str] = set()
    for schema in schemas:
        names = constraint_names(schema)
        known |= names.keys()
        allowed |= set(names.get(name, ()))
    if not allowed:
        raise KernelRegistrationError(f"{_label(kernel_def)}: no type constraint '{name}'; the operator has {sorted(known)}")
    unknown = [type_string for type_string in types if type_string not in allowed]
    if unknown or not types:
        raise KernelRegistrationError(
            f"{_label(kernel_def)}: constraint '{name}' does not allow {unknown or 'an empty list'}; it allows {sorted(allowed)}"
        )


def constraint_names(schema: OperatorSchema) -> dict[str, tuple[str, ...]]:
    """Names a kernel may constrain (type constraints, and formal parameters of a fixed type) → types allowed."""
    names: dict[str, tuple[str, ...]] = dict(schema.type_constraints)
    for formal in (*schema.inputs, *schema.outputs):
        if formal.type_str not in schema.type_constraints:
            names.setdefault(formal.name, (formal.type_str,))
    return names


def _conflicts(first: KernelDef, second: KernelDef) -> bool:
    if first.when is not None or second.when is not None:
        return False
    first_end = first.since_version if first.end_version is None else first.end_version
    second_end = second.since_version if second.end_version is None else second.end_version
    if first_end < second.since_version or second_end < first.since_version:
        return False
    shared = first.type_constraints.keys() & second.type_constraints.keys()
    return all(set(first.type_constraints[name]) & set(second.type_constraints[name]) for name in shared)


def _label(kernel_def: KernelDef) -> str:
    return f"{kernel_def.domain or 'ai.onnx'}::{kernel_def.op_type}({kernel_def.version_text()})"
