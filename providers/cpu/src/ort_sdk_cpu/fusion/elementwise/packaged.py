"""Short chains that archives have, so that a process without a compiler computes longer ones in parts.

Those of one operator, for most on float32, and pairs of the operators that networks are full of. What arrays are contiguous,
broadcast or one element is known at run time only: each is one function for all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ort_sdk_cpu.kernel.element_operation import ElementOperation

from .ir import Chain, ChainStep
from .rules import rule_of

__all__ = ["packaged_chains"]

_UNARY = ("Exp", "Gelu", "HardSwish", "Neg", "Relu", "Sigmoid", "Sqrt", "Tanh")
_BINARY = ("Add", "Div", "Mul", "Sub")
"""Operators of pairs."""

_ALONE: tuple[tuple[str, Mapping[str, Any], int], ...] = (
    *((name, {}, 1) for name in ("Abs", "Ceil", "Erf", "FastGelu", "Floor", "Mish", "Not", "Reciprocal", "Round", "Sign")),
    ("Softsign", {}, 1),
    *((name, {}, 2) for name in ("And", "BiasGelu", "FastGelu", "Max", "Min", "Or", "PRelu", "Sum", "Xor")),
    *((name, {}, 2) for name in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")),
    *((f"{name}.{code}", {}, 2) for name in ("Add", "Div", "Equal", "Greater", "Less", "Mul", "Sub") for code in "il"),
    *((f"Where.{code}", {}, 3) for code in "il"),
    *((f"Cast.{codes}", {}, 1) for codes in ("bf", "fb", "bl", "if", "lf", "il", "li")),
    *(("Clip", {}, count) for count in (2, 3)),
    *(("Pow", {"exponent": exponent}, 2) for exponent in (2, 3)),
    ("Clip", {"min": 0.0, "max": 6.0}, 1),
    ("Elu", {"gamma": 1.0, "scale": 1.0, "width": 1.0}, 1),
    ("Gelu", {"approximate": "none"}, 1),
    ("Gelu", {"approximate": "tanh"}, 1),
    ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}, 1),
    ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}, 1),
    ("LeakyRelu", {"alpha": 0.01}, 1),
    ("LeakyRelu", {"alpha": 0.1}, 1),
    ("LeakyRelu", {"alpha": 0.2}, 1),
    ("QuickGelu", {"alpha": 1.702}, 1),
    ("Swish", {"alpha": 1.0}, 1),
    ("Sum", {}, 3),
    ("Where", {}, 3),
)
"""Rules, attributes and numbers of inputs of further operators."""


def packaged_chains() -> Iterator[Chain]:
    """The chains, each as ``groups`` writes it: values are numbered inputs first, in the order in which they are read."""
    for name, attributes, count in _ALONE:
        written = _as_files_have(attributes)
        for each in (attributes,) if written == attributes else (attributes, written):
            yield _chain(count, ChainStep(ElementOperation(name, each), tuple(range(count))))
    yield from (_chain(1, _step(name, 0)) for name in _UNARY)
    yield from (_chain(count, _step(name, 0, count - 1)) for name in _BINARY for count in (1, 2))
    yield from (_chain(2, _step(name, 0, 1), _step(after, 2)) for name, after in itertools.product(_BINARY, _UNARY))
    for name, after in itertools.product(_UNARY, _BINARY):
        # With the same input again, as in x * sigmoid(x), and with another one.
        yield from (_chain(1, _step(name, 0), _step(after, *operands)) for operands in ((0, 1), (1, 0)))
        yield from (_chain(2, _step(name, 0), _step(after, *operands)) for operands in ((1, 2), (2, 1)))
    yield from (_chain(2, _step("Mul", 0, 0), _step("Add", *operands)) for operands in ((1, 2), (2, 1)))
    for name, after in itertools.product(_BINARY, _BINARY):
        yield from (_chain(3, _step(name, 0, 1), _step(after, *operands)) for operands in ((2, 3), (3, 2)))


def _as_files_have(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that a model says, in float32; an operator's defaults have more digits."""
    return {name: float(np.float32(value)) if isinstance(value, float) else value for name, value in attributes.items()}


def _step(name: str, *operands: int) -> ChainStep:
    return ChainStep(ElementOperation(name), operands)


def _chain(inputs: int, *steps: ChainStep) -> Chain:
    """A chain of some inputs, whose last step makes the output."""
    types = {
        operand: wanted[min(index, len(wanted) - 1)]
        for wanted, step in ((rule_of(step.operation.op_type).inputs, step) for step in steps)
        for index, operand in enumerate(step.operands)
        if operand < inputs
    }
    return Chain("".join(types[number] for number in range(inputs)), steps, (inputs + len(steps) - 1,))
