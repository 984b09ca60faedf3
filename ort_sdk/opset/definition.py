"""How an operator is declared once and registered for every version and type its specification lists."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeVar

from ort_sdk.api import (
    HalfSupport,
    KernelCreateInfo,
    KernelDef,
    KernelInfo,
    KernelPredicate,
    KernelRegistry,
    OperatorSchema,
    OrtMemType,
    TensorElementType,
    find_schema,
    schema_versions,
)
from ort_sdk.api.data_classes import dataclass, field

from .families import DeclaredOperators, load_operator
from .input_shapes import InputRule, ShapeRule
from .namespace import ArrayNamespace
from .numpy_namespace import NumpyNamespace
from .widening import HALF_TYPES, mixes_half_and_float, widened

__all__ = [
    "DEFINITIONS",
    "OperatorDefinition",
    "OperatorFactory",
    "OpsetKernel",
    "add_opset",
    "as_namespace",
    "input_rule",
    "operator",
]

OperatorFactory = Callable[[KernelInfo, Any], Any]
"""Makes a node's kernel over an array namespace: ``factory(info, xp)`` returns a function or a kernel object."""


@dataclass(frozen=True, slots=True)
class OperatorDefinition:
    """One implementation of an operator, for a range of its versions."""

    op_type: str
    domain: str
    since: int
    until: int | None
    factory: OperatorFactory
    shape_inputs: tuple[int, ...] | None
    host_inputs: tuple[int, ...]
    host_outputs: tuple[int, ...]
    deterministic: bool
    contents_from_shapes: bool
    host_only: bool
    any_type: bool
    moves: bool
    module: str
    """Module that declares it."""
    alias: tuple[tuple[int, int], ...] = ()
    hands_on_values: bool = False
    when: KernelPredicate | None = field(default=None, compare=False)
    shapes: ShapeRule | None = field(default=None, compare=False)
    """What shapes inputs may have together; None where the implementation itself looks at them."""

    def versions(self) -> tuple[int, ...]:
        """Since-versions of the operator's schemas that this definition implements."""
        return tuple(
            version
            for version in schema_versions(self.op_type, self.domain)
            if self.since <= version and (self.until is None or version <= self.until)
        )


DEFINITIONS: dict[tuple[str, str], list[OperatorDefinition]] = {}
"""(domain, op_type) → definitions, filled by importing the family modules."""

_F = TypeVar("_F", bound=OperatorFactory)


def operator(
    op_type: str,
    *,
    domain: str = "",
    since: int = 1,
    until: int | None = None,
    shape_inputs: Iterable[int] | None = (),
    host_inputs: Iterable[int] = (),
    host_outputs: Iterable[int] = (),
    deterministic: bool = True,
    contents_from_shapes: bool = False,
    host_only: bool = False,
    any_type: bool = False,
    moves: bool = False,
    alias: Iterable[tuple[int, int]] = (),
    hands_on_values: bool = False,
    when: KernelPredicate | None = None,
    shapes: ShapeRule | None = None,
) -> Callable[[_F], _F]:
    """Decorator that declares an operator's implementation over an array namespace.

    Args:
        op_type: operator.
        domain: its domain.
        since: first since-version implemented.
        until: last since-version implemented; None for all later ones the schema table knows.
        shape_inputs: inputs whose contents decide output shapes; None if any contents may (NonZero).
        host_inputs: inputs the kernel reads as NumPy arrays whatever the library; -1 for all.
        host_outputs: outputs the kernel leaves as NumPy arrays; -1 for all.
        deterministic: equal inputs give equal outputs.
        contents_from_shapes: output contents depend on input shapes alone.
        host_only: the operator only makes sense over NumPy (strings, images, trees), or runs a body, whose values are the host's.
        any_type: the kernel moves elements without computing on them, so no type is widened around it.
        moves: it also hands on float instead of the node's own half type, by arrays and ``KernelInfo``. Implies ``any_type``.
        alias: (input, output) pairs where the output may be a view of the input.
        hands_on_values: values of bodies may be on any device; see ``KernelDef``.
        when: predicate that may decline a node.
        shapes: refuses shapes of inputs that the operator does not allow together, before anything is computed or bound.
    """
    module = sys._getframe(1).f_globals["__name__"]

    def declare(factory: _F) -> _F:
        definition = OperatorDefinition(
            op_type=op_type,
            domain=domain,
            since=since,
            until=until,
            factory=factory,
            shape_inputs=None if shape_inputs is None else tuple(shape_inputs),
            host_inputs=tuple(host_inputs),
            host_outputs=tuple(host_outputs),
            deterministic=deterministic,
            contents_from_shapes=contents_from_shapes,
            host_only=host_only,
            any_type=any_type or moves,
            moves=moves,
            module=module,
            alias=tuple(alias),
            hands_on_values=hands_on_values,
            when=when,
            shapes=shapes,
        )
        DEFINITIONS.setdefault((domain, op_type), []).append(definition)
        return factory

    return declare


class OpsetKernel:
    """A function kernel with the abilities its definition declares."""

    __slots__ = ("compute", "contents_from_shapes", "deterministic", "input_rule", "shape_inputs")

    def __init__(self, compute: Callable[..., Any], definition: OperatorDefinition, input_rule: InputRule | None = None) -> None:
        self.compute = compute if input_rule is None else _checked(compute, input_rule)
        self.input_rule = input_rule
        """What the inputs' shapes are checked by; for those that compute or bind the node in another way, too."""
        self.deterministic = definition.deterministic
        self.shape_inputs = definition.shape_inputs
        self.contents_from_shapes = definition.contents_from_shapes


def as_namespace(xp: ModuleType | ArrayNamespace) -> ArrayNamespace:
    """The adapter for an array library: itself if it is one, NumPy's own, or the generic one."""
    if isinstance(xp, ArrayNamespace):
        return xp
    return NumpyNamespace() if xp.__name__ == "numpy" else ArrayNamespace(xp)


def add_opset(
    registry: KernelRegistry,
    xp: ModuleType | ArrayNamespace,
    *,
    types: Iterable[TensorElementType] | None = None,
    exclude: Collection[str] = (),
) -> None:
    """Register ONNX's operators, implemented over an array library.

    Args:
        registry: registry to add to; kernels registered in it one by one take precedence.
        xp: a module that follows the array API standard, or an ``ArrayNamespace`` around one.
        types: element types to register kernels for; all the library stores by default.
        exclude: op types to leave out.
    """
    namespace = as_namespace(xp)
    element_types = frozenset(namespace.element_types if types is None else types)
    allowed = frozenset(element_type.onnx_name for element_type in element_types)
    operators = DeclaredOperators(on_host=namespace.is_host, exclude=exclude)

    def source(domain: str, op_type: str) -> list[KernelCreateInfo]:
        rows = []
        load_operator(domain, op_type)
        for definition in DEFINITIONS[domain, op_type]:
            if definition.host_only and not namespace.is_host:
                continue
            create = functools.partial(_create, definition, namespace)
            half_support = _half_support(definition, namespace, element_types)
            for version in definition.versions():
                kernel_def = _kernel_def(definition, version, allowed, half_support)
                if kernel_def is not None:
                    rows.append(KernelCreateInfo(kernel_def, create))
        return rows

    registry.add_source(source, operators)


def _half_support(
    definition: OperatorDefinition, namespace: ArrayNamespace, element_types: Collection[TensorElementType]
) -> HalfSupport:
    computes_in_float = all(namespace.compute_type(half) is TensorElementType.FLOAT for half in HALF_TYPES)
    if not computes_in_float or TensorElementType.FLOAT not in element_types:
        return HalfSupport.NATIVE
    if definition.moves:
        return HalfSupport.MOVED
    return HalfSupport.NATIVE if definition.any_type else HalfSupport.WIDENED


def _kernel_def(
    definition: OperatorDefinition, version: int, allowed: frozenset[str], half_support: HalfSupport
) -> KernelDef | None:
    schema = find_schema(definition.op_type, version, definition.domain)
    if schema is None or schema.is_deprecated:
        return None
    constraints = _constraints(schema, allowed)
    if constraints is None:
        return None
    return KernelDef(
        op_type=definition.op_type,
        since_version=version,
        domain=definition.domain,
        type_constraints=constraints,
        input_memory_types=dict.fromkeys(definition.host_inputs, OrtMemType.CPU_INPUT),
        output_memory_types=dict.fromkeys(definition.host_outputs, OrtMemType.CPU_OUTPUT),
        alias=definition.alias,
        when=definition.when,
        half_support=half_support,
        hands_on_values=definition.hands_on_values,
    )


def _constraints(schema: OperatorSchema, allowed: frozenset[str]) -> Mapping[str, tuple[str, ...]] | None:
    constraints = {}
    for name, types in schema.type_constraints.items():
        kept = tuple(type_string for type_string in types if _element_name(type_string) in allowed)
        if not kept:
            return None
        constraints[name] = kept
    return constraints


@functools.cache
def _element_name(type_string: str) -> str:
    """Innermost element name: ``float`` of ``optional(seq(tensor(float)))``, the value's of a map."""
    return type_string.rstrip(")").rpartition("(")[2].rpartition(",")[2].strip()


def _create(definition: OperatorDefinition, namespace: ArrayNamespace, info: KernelInfo) -> Any:
    is_exact = definition.any_type and not (definition.moves and mixes_half_and_float(info))
    kernel = definition.factory(info, namespace) if is_exact else widened(definition.factory, info, namespace)
    if hasattr(kernel, "compute"):
        return kernel
    return OpsetKernel(kernel, definition, None if definition.shapes is None else InputRule(info, definition.shapes))


def input_rule(info: KernelInfo) -> InputRule | None:
    """What a node's input shapes are checked by, for kernels that are made without the shared set's; None for nothing."""
    rule = _shape_rule(info.domain, info.op_type, info.since_version)
    return None if rule is None else InputRule(info, rule)


@functools.cache
def _shape_rule(domain: str, op_type: str, version: int) -> ShapeRule | None:
    """The rule of an operator's version."""
    load_operator(domain, op_type)
    return next((each.shapes for each in DEFINITIONS[domain, op_type] if version in each.versions()), None)


def _checked(compute: Callable[..., Any], rule: InputRule) -> Callable[..., Any]:
    """The function behind the rule."""
    check = rule.check

    def run(*inputs: Any) -> Any:
        check(inputs)
        return compute(*inputs)

    return run
