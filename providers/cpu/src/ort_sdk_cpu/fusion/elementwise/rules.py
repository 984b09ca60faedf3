"""How each operator that can be part of a chain is computed, by the types it is computed on."""

from __future__ import annotations

from collections.abc import Mapping

from .rules_float import FLOAT_RULES, Rule

__all__ = ["rule_name", "rule_of"]

_OF_INPUTS = frozenset({"Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual"})
"""Operators whose output has another type than what they are computed on."""


def rule_name(op_type: str, inputs: str, output: str) -> str | None:
    """Under which name the rule of an operator on some types is; None if there is none.

    Args:
        op_type: the operator.
        inputs: codes of its inputs' types.
        output: code of its output's.
    """
    if op_type == "Cast":
        name = f"Cast.{inputs[0]}{output}"
    else:
        plain, code = FLOAT_RULES.get(op_type), inputs[0] if op_type in _OF_INPUTS else output
        own = "" if plain is None else plain.inputs[0] if op_type in _OF_INPUTS else plain.output
        name = op_type if code == own else f"{op_type}.{code}"
    return name if name in _rules_with(name) else None


def rule_of(name: str) -> Rule:
    """How it is computed: the operator on float32, or truth values where it is logic; with codes, on other types."""
    return _rules_with(name)[name]


def _rules_with(name: str) -> Mapping[str, Rule]:
    """The rules among which one of this name would be; few networks need any of other types."""
    if "." not in name or name.endswith(".f"):
        return FLOAT_RULES
    from .rules_typed import TYPED_RULES

    return TYPED_RULES
