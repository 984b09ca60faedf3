"""LLVM instructions of operators on vectors of sixteen float32, and of logic."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api.data_classes import dataclass

from .types import ELEMENTS

__all__ = ["BOOL", "FLOAT", "FLOAT_RULES", "Emit", "FunctionBody", "Rule", "fold"]

FLOAT = "<16 x float>"
BOOL = "<16 x i1>"
"""LLVM types of vectors of float32 and of truth values."""


class FunctionBody:
    """Text of a function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.functions: set[str] = set()
        """Vector functions it calls."""
        self.intrinsics: set[tuple[str, str, str]] = set()
        """LLVM's own functions it calls, with the types of their results and of their arguments."""
        self._count = 0

    def value(self, instruction: str) -> str:
        """Append an instruction; returns the name of its result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"{name} = {instruction}")
        return name

    def line(self, text: str) -> None:
        """Append an instruction without result, or a label."""
        self.lines.append(text)

    def call(self, function: str, x: str) -> str:
        """Call a vector function."""
        self.functions.add(function)
        return self.value(f"call {FLOAT} @vector_{function}({FLOAT} {x})")

    def intrinsic(self, name: str, *values: str, code: str = "f") -> str:
        """Call one of LLVM's functions of vectors of floats."""
        vector, suffix = ELEMENTS[code].vector, ELEMENTS[code].suffix
        self.intrinsics.add((vector, f"llvm.{name}.{suffix}", ", ".join([vector] * len(values))))
        return self.value(f"call {vector} @llvm.{name}.{suffix}({', '.join(f'{vector} {value}' for value in values)})")


Emit = Callable[[FunctionBody, Mapping[str, Any], Sequence[str]], str]
"""``emit(body, attributes, values)`` returns the name of the result; absent inputs are empty names."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How an operator is computed."""

    emit: Emit
    inputs: str = "f"
    """Letter of each input's type; the last one goes for all that follow."""
    output: str = "f"
    """Letter of the output's type."""
    cost: int = 1
    """About how many times a sum's work."""


def splat(number: float) -> str:
    """A number in every lane, as a constant."""
    return f"splat (float 0x{struct.pack('>d', float(np.float32(number))).hex().upper()})"


def _binary(operation: str) -> Rule:
    return Rule(lambda body, _, values: body.value(f"{operation} {FLOAT} {values[0]}, {values[1]}"), "ff")


def fold(combine: Callable[[FunctionBody, str, str], str], code: str = "f") -> Rule:
    """An operator of any number of inputs of a type, combined from left to right."""

    def emit(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
        result = values[0]
        for value in values[1:]:
            result = combine(body, result, value)
        return result

    return Rule(emit, code, code)


def _intrinsic(name: str, cost: int = 1) -> Rule:
    return Rule(lambda body, _, values: body.intrinsic(name, values[0]), cost=cost)


def _function(name: str) -> Rule:
    return Rule(lambda body, _, values: body.call(name, values[0]), cost=8)


def _compare(predicate: str) -> Rule:
    return Rule(lambda body, _, values: body.value(f"fcmp {predicate} {FLOAT} {values[0]}, {values[1]}"), "ff", "b")


def _logical(operation: str) -> Rule:
    return Rule(lambda body, _, values: body.value(f"{operation} {BOOL} {values[0]}, {values[1]}"), "bb", "b")


def _select(body: FunctionBody, condition: str, x: str, y: str) -> str:
    return body.value(f"select {BOOL} {condition}, {FLOAT} {x}, {FLOAT} {y}")


def _relu(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    is_negative = body.value(f"fcmp olt {FLOAT} {values[0]}, zeroinitializer")
    return _select(body, is_negative, "zeroinitializer", values[0])


def _leaky_relu(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    is_negative = body.value(f"fcmp olt {FLOAT} {values[0]}, zeroinitializer")
    scaled = body.value(f"fmul {FLOAT} {values[0]}, {splat(attributes['alpha'])}")
    return _select(body, is_negative, scaled, values[0])


def _prelu(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    is_negative = body.value(f"fcmp olt {FLOAT} {values[0]}, zeroinitializer")
    scaled = body.value(f"fmul {FLOAT} {values[0]}, {values[1]}")
    return _select(body, is_negative, scaled, values[0])


def _clip(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    bounds = [splat(attributes[name]) for name in ("min", "max")] if attributes else values[1:]
    x, low, high = (values[0], *bounds, "", "")[:3]
    raised = body.intrinsic("maximum", x, low) if low else x
    return body.intrinsic("minimum", raised, high) if high else raised


def _hard_sigmoid(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    scaled = body.value(f"fmul {FLOAT} {values[0]}, {splat(attributes['alpha'])}")
    raised = body.value(f"fadd {FLOAT} {scaled}, {splat(attributes['beta'])}")
    return body.intrinsic("minimum", body.intrinsic("maximum", raised, splat(0)), splat(1))


def _hard_swish(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    gate = _hard_sigmoid(body, {"alpha": 1 / 6, "beta": 0.5}, values)
    return body.value(f"fmul {FLOAT} {values[0]}, {gate}")


def _swish(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    scaled = body.value(f"fmul {FLOAT} {values[0]}, {splat(attributes['alpha'])}")
    return body.value(f"fmul {FLOAT} {values[0]}, {body.call('sigmoid', scaled)}")


def _gelu(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    return body.call("fast_gelu" if attributes.get("approximate") == "tanh" else "gelu", values[0])


def _biased(function: str) -> Rule:
    def emit(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
        x, bias = (*values, "")[:2]
        return body.call(function, body.value(f"fadd {FLOAT} {x}, {bias}") if bias else x)

    return Rule(emit, "ff", cost=8)


def _mean(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    total = _SUM.emit(body, attributes, values)
    return body.value(f"fdiv {FLOAT} {total}, {splat(len(values))}")


def _elu(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    """``gamma * x``, and ``scale * (exp(x / width) - 1)`` where x is negative."""
    (x,) = values
    is_negative = body.value(f"fcmp olt {FLOAT} {x}, zeroinitializer")
    narrow = x if attributes["width"] == 1 else body.value(f"fdiv {FLOAT} {x}, {splat(attributes['width'])}")
    below = body.value(f"fmul {FLOAT} {body.call('expm1_nonpositive', narrow)}, {splat(attributes['scale'])}")
    above = x if attributes["gamma"] == 1 else body.value(f"fmul {FLOAT} {x}, {splat(attributes['gamma'])}")
    return _select(body, is_negative, below, above)


def _softsign(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    size = body.intrinsic("fabs", values[0])
    return body.value(f"fdiv {FLOAT} {values[0]}, {body.value(f'fadd {FLOAT} {splat(1)}, {size}')}")


def _thresholded(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    is_above = body.value(f"fcmp ogt {FLOAT} {values[0]}, {splat(attributes['alpha'])}")
    return _select(body, is_above, values[0], "zeroinitializer")


def _shrink(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    (x,) = values
    limit, bias = attributes["lambd"], splat(attributes["bias"])
    is_below = body.value(f"fcmp olt {FLOAT} {x}, {splat(-limit)}")
    is_above = body.value(f"fcmp ogt {FLOAT} {x}, {splat(limit)}")
    lowered = _select(body, is_above, body.value(f"fsub {FLOAT} {x}, {bias}"), "zeroinitializer")
    return _select(body, is_below, body.value(f"fadd {FLOAT} {x}, {bias}"), lowered)


def _mish(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    """X * tanh(log(1 + exp(x))), as x * n / (n + 2) with n = exp(x) * (exp(x) + 2), which is 1 for large x."""
    (x,) = values
    power = body.call("exp", body.intrinsic("minimum", x, splat(20)))
    product = body.value(f"fmul {FLOAT} {power}, {body.value(f'fadd {FLOAT} {power}, {splat(2)}')}")
    share = body.value(f"fdiv {FLOAT} {product}, {body.value(f'fadd {FLOAT} {product}, {splat(2)}')}")
    return body.value(f"fmul {FLOAT} {x}, {share}")


def _sign(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    """Of NaN, NaN."""
    (x,) = values
    is_negative = body.value(f"fcmp olt {FLOAT} {x}, zeroinitializer")
    is_positive = body.value(f"fcmp ogt {FLOAT} {x}, zeroinitializer")
    rest = body.value(f"fadd {FLOAT} {x}, zeroinitializer")
    return _select(body, is_negative, splat(-1), _select(body, is_positive, splat(1), rest))


def _power(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    """Repeated products; the exponent is known."""
    result = values[0]
    for _ in range(attributes["exponent"] - 1):
        result = body.value(f"fmul {FLOAT} {result}, {values[0]}")
    return result


_SUM = fold(lambda body, x, y: body.value(f"fadd {FLOAT} {x}, {y}"))

FLOAT_RULES: dict[str, Rule] = {
    "Abs": _intrinsic("fabs"),
    "Add": _binary("fadd"),
    "And": _logical("and"),
    "BiasGelu": _biased("gelu"),
    "Ceil": _intrinsic("ceil"),
    "Celu": Rule(_elu, cost=8),
    "Clip": Rule(_clip),
    "Div": Rule(_binary("fdiv").emit, "ff", cost=3),
    "Elu": Rule(_elu, cost=8),
    "Equal": _compare("oeq"),
    "Erf": _function("erf"),
    "Exp": _function("exp"),
    "FastGelu": _biased("fast_gelu"),
    "Floor": _intrinsic("floor"),
    "Gelu": Rule(_gelu, cost=8),
    "Greater": _compare("ogt"),
    "GreaterOrEqual": _compare("oge"),
    "HardSigmoid": Rule(_hard_sigmoid, cost=3),
    "HardSwish": Rule(_hard_swish, cost=3),
    "IsNaN": Rule(lambda body, _, values: body.value(f"fcmp uno {FLOAT} {values[0]}, zeroinitializer"), "f", "b"),
    "LeakyRelu": Rule(_leaky_relu),
    "Less": _compare("olt"),
    "LessOrEqual": _compare("ole"),
    "Max": fold(lambda body, x, y: body.intrinsic("maximum", x, y)),
    "Mean": Rule(_mean, cost=3),
    "Min": fold(lambda body, x, y: body.intrinsic("minimum", x, y)),
    "Mish": Rule(_mish, cost=9),
    "Mul": _binary("fmul"),
    "Neg": Rule(lambda body, _, values: body.value(f"fneg {FLOAT} {values[0]}")),
    "Not": Rule(lambda body, _, values: body.value(f"xor {BOOL} {values[0]}, splat (i1 true)"), "b", "b"),
    "Or": _logical("or"),
    "PRelu": Rule(_prelu, "ff"),
    "Pow": Rule(_power, "ff"),
    "QuickGelu": Rule(_swish, cost=8),
    "Reciprocal": Rule(lambda body, _, values: body.value(f"fdiv {FLOAT} {splat(1)}, {values[0]}"), cost=3),
    "Relu": Rule(_relu),
    "Round": _intrinsic("rint"),
    "Selu": Rule(_elu, cost=8),
    "Shrink": Rule(_shrink, cost=3),
    "Sigmoid": _function("sigmoid"),
    "Sign": Rule(_sign, cost=2),
    "Softsign": Rule(_softsign, cost=3),
    "Sqrt": _intrinsic("sqrt", cost=3),
    "Sub": _binary("fsub"),
    "Sum": _SUM,
    "Swish": Rule(_swish, cost=8),
    "Tanh": _function("tanh"),
    "ThresholdedRelu": Rule(_thresholded, cost=2),
    "Where": Rule(lambda body, _, values: _select(body, *values), "bff"),
    "Xor": _logical("xor"),
}
"""Operator → how it is computed on float32; logic on truth values."""
