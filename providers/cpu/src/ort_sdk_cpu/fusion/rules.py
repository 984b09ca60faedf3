"""How each operator that can be part of a chain is computed, by the types it is computed on."""

from __future__ import annotations

from collections.abc import Mapping

from .instructions import FLOAT_RULES, Rule
from .typed_instructions import TYPED_RULES

__all__ = ["RULES", "rule_name"]

RULES: Mapping[str, Rule] = {**FLOAT_RULES, **TYPED_RULES}
"""Name → how it is computed: the operator on float32, or truth values where it is logic; with letters, on other types."""

_OF_INPUTS = frozenset({"Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual"})
"""Operators whose output has another type than what they are computed on."""


def rule_name(op_type: str, inputs: str, output: str) -> str | None:
    """Under which name the rule of an operator on some types is; None if there is none.

    Args:
        op_type: the operator.
        inputs: letters of its inputs' types.
        output: letter of its output's.
    """
    if op_type == "Cast":
        name = f"Cast.{inputs[0]}{output}"
    else:
        plain, letter = RULES.get(op_type), inputs[0] if op_type in _OF_INPUTS else output
        own = "" if plain is None else plain.inputs[0] if op_type in _OF_INPUTS else plain.output
        name = op_type if letter == own else f"{op_type}.{letter}"
    return name if name in RULES else None
