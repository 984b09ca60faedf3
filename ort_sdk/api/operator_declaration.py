"""Operators that a provider declares itself, where ONNX has no schema for them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from .errors import KernelRegistrationError
from .operator_schema import FormalParameter, OperatorSchema, ParameterOption, newest_opset, schema_versions

__all__ = ["declared_schema"]

MANY = 2**31 - 1
"""Most arguments of an operator with a variadic parameter, as onnx writes it."""


def declared_schema(
    op_type: str,
    since_version: int,
    domain: str,
    inputs: Iterable[FormalParameter],
    outputs: Iterable[FormalParameter],
    type_constraints: Mapping[str, Iterable[str]],
) -> OperatorSchema:
    """Schema of an operator, from what its provider says of it; see ``KernelRegistry.declare_operator``.

    Raises:
        KernelRegistrationError: the declaration contradicts itself, or ONNX's own schema.
    """
    label = f"declaration of {domain or 'ai.onnx'}::{op_type}({since_version})"
    formal_inputs, formal_outputs = tuple(inputs), tuple(outputs)
    constraints = {name: tuple(types) for name, types in type_constraints.items()}
    _check_identity(label, op_type, since_version, domain)
    for what, formals in (("input", formal_inputs), ("output", formal_outputs)):
        _check_formals(label, what, formals, constraints)
    _check_shared_names(label, [formal for formal in (*formal_inputs, *formal_outputs) if formal.type_str not in constraints])
    _check_constraints(label, constraints, (*formal_inputs, *formal_outputs))
    least_inputs, most_inputs = _arity(formal_inputs)
    least_outputs, most_outputs = _arity(formal_outputs)
    return OperatorSchema(
        op_type=op_type,
        domain=domain,
        since_version=since_version,
        inputs=formal_inputs,
        outputs=formal_outputs,
        type_constraints=constraints,
        attribute_types={},
        attribute_defaults={},
        required_attributes=(),
        min_inputs=least_inputs,
        max_inputs=most_inputs,
        min_outputs=least_outputs,
        max_outputs=most_outputs,
        is_deprecated=False,
        has_function=False,
        declares_attributes=False,
    )


def _check_identity(label: str, op_type: str, since_version: int, domain: str) -> None:
    if not op_type or ":" in op_type or ":" in domain or domain == "ai.onnx":
        raise KernelRegistrationError(
            f"{label}: an operator needs a name, neither it nor its domain may contain ':', and the domain ai.onnx is written ''"
        )
    if since_version < 1:
        raise KernelRegistrationError(f"{label}: since_version must be 1 or more, got {since_version}")
    versions = schema_versions(op_type, domain)
    if versions and since_version <= newest_opset(domain):
        raise KernelRegistrationError(
            f"{label}: the operator has schemas of since-versions {list(versions)}, which hold up to version "
            f"{newest_opset(domain)} of its domain; only later ones can be declared"
        )


def _check_formals(label: str, what: str, formals: Sequence[FormalParameter], constraints: Mapping[str, tuple[str, ...]]) -> None:
    names = [formal.name for formal in formals]
    if not all(names) or len(set(names)) < len(names):
        raise KernelRegistrationError(f"{label}: each {what} needs a name of its own, got {names}")
    for index, formal in enumerate(formals):
        if formal.option == ParameterOption.VARIADIC and index < len(formals) - 1:
            raise KernelRegistrationError(f"{label}: {what} '{formal.name}' is variadic, which only the last {what} can be")
        if formal.name in constraints and formal.type_str != formal.name:
            raise KernelRegistrationError(
                f"{label}: {what} '{formal.name}' has the name of a type constraint; rename one of them"
            )
        if formal.type_str not in constraints and not _is_type(formal.type_str):
            raise KernelRegistrationError(
                f"{label}: {what} '{formal.name}' is of '{formal.type_str}', which is neither one of the type constraints "
                f"({', '.join(constraints) or 'it has none'}) nor a type such as 'tensor(float)'"
            )


def _check_shared_names(label: str, fixed: Sequence[FormalParameter]) -> None:
    """A kernel constrains formal parameters of a fixed type by their names."""
    types: dict[str, str] = {}
    for formal in fixed:
        if types.setdefault(formal.name, formal.type_str) != formal.type_str:
            raise KernelRegistrationError(
                f"{label}: an input and an output named '{formal.name}' are of different types, {types[formal.name]} and "
                f"{formal.type_str}; give them different names"
            )


def _check_constraints(label: str, constraints: Mapping[str, tuple[str, ...]], formals: Sequence[FormalParameter]) -> None:
    used = {formal.type_str for formal in formals}
    for name, types in constraints.items():
        if name not in used:
            raise KernelRegistrationError(f"{label}: no input or output is of the type constraint '{name}'")
        wrong = [type_string for type_string in types if not _is_type(type_string)]
        if wrong or not types:
            raise KernelRegistrationError(
                f"{label}: type constraint '{name}' allows {wrong or 'no type'}; give it types such as 'tensor(float)'"
            )


def _arity(formals: Sequence[FormalParameter]) -> tuple[int, int]:
    """Fewest and most arguments; a variadic parameter takes at least one."""
    needed = [index + 1 for index, formal in enumerate(formals) if formal.option != ParameterOption.OPTIONAL]
    is_variadic = bool(formals) and formals[-1].option == ParameterOption.VARIADIC
    return max(needed, default=0), MANY if is_variadic else len(formals)


def _is_type(text: str) -> bool:
    # Compiled when an operator is declared, which few processes do.
    return re.fullmatch(r"(tensor|seq|optional|map|sparse_tensor|opaque)\(.+\)", text) is not None
