"""LLVM instructions of operators on other types than float32: integers, float64, truth values, and casts between types."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from .rules_float import Emit, FunctionBody, Rule, fold
from .types import ELEMENTS, SIGNED

__all__ = ["TYPED_RULES"]

_COMPARISONS = {"Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le"}
_WIDE = "<16 x double>"


def _binary(operation: str, code: str, cost: int = 1) -> Rule:
    vector = ELEMENTS[code].vector
    return Rule(lambda body, _, values: body.value(f"{operation} {vector} {values[0]}, {values[1]}"), code * 2, code, cost=cost)


def _less(code: str) -> str:
    """The comparison whether x is below y."""
    if code == "d":
        return "fcmp olt"
    return "icmp slt" if code in SIGNED else "icmp ult"


def _bounding(code: str, *, largest: bool) -> Any:
    vector = ELEMENTS[code].vector

    def combine(body: FunctionBody, x: str, y: str) -> str:
        if code == "d":
            return body.intrinsic("maximum" if largest else "minimum", x, y, code=code)
        is_less = body.value(f"{_less(code)} {vector} {x}, {y}")
        first, second = (y, x) if largest else (x, y)
        return body.value(f"select <16 x i1> {is_less}, {vector} {first}, {vector} {second}")

    return combine


def _clip(code: str) -> Rule:
    raise_to, lower_to = _bounding(code, largest=True), _bounding(code, largest=False)

    def emit(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
        x, low, high = (*values, "", "")[:3]
        raised = raise_to(body, x, low) if low else x
        result: str = lower_to(body, raised, high) if high else raised
        return result

    return Rule(emit, code, code)


def _quotient(code: str) -> Emit:
    """Truncated quotients; by 0 they are 0, as NumPy's, and the least number by -1 is itself."""
    vector = ELEMENTS[code].vector

    def emit(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
        x, y = values[:2]
        is_zero = body.value(f"icmp eq {vector} {y}, zeroinitializer")
        is_minus = body.value(f"icmp eq {vector} {y}, splat ({ELEMENTS[code].scalar} -1)")
        special = body.value(f"or <16 x i1> {is_zero}, {is_minus}")
        one = f"splat ({ELEMENTS[code].scalar} 1)"
        safe = body.value(f"select <16 x i1> {special}, {vector} {one}, {vector} {y}")
        quotient = _wide_quotient(body, x, safe) if code == "i" else body.value(f"sdiv {vector} {x}, {safe}")
        negated = body.value(f"sub {vector} zeroinitializer, {x}")
        signed = body.value(f"select <16 x i1> {is_minus}, {vector} {negated}, {vector} {quotient}")
        return body.value(f"select <16 x i1> {is_zero}, {vector} zeroinitializer, {vector} {signed}")

    return emit


def _wide_quotient(body: FunctionBody, x: str, y: str) -> str:
    """Of 32-bit integers, by doubles: their quotient never rounds to an integer that it does not reach."""
    wide = [body.value(f"sitofp <16 x i32> {value} to {_WIDE}") for value in (x, y)]
    quotient = body.value(f"fdiv {_WIDE} {wide[0]}, {wide[1]}")
    return body.value(f"fptosi {_WIDE} {quotient} to <16 x i32>")


def _absolute(code: str) -> Rule:
    vector = ELEMENTS[code].vector

    def emit(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
        is_negative = body.value(f"icmp slt {vector} {values[0]}, zeroinitializer")
        negated = body.value(f"sub {vector} zeroinitializer, {values[0]}")
        return body.value(f"select <16 x i1> {is_negative}, {vector} {negated}, {vector} {values[0]}")

    return Rule(emit, code, code)


def _unary(instruction: str, code: str) -> Rule:
    """``instruction`` with the input in the place of ``{x}`` and the vector's type in that of ``{v}``."""
    vector = ELEMENTS[code].vector
    return Rule(lambda body, _, values: body.value(instruction.format(v=vector, x=values[0])), code, code)


def _select(code: str) -> Rule:
    vector = ELEMENTS[code].vector
    return Rule(
        lambda body, _, values: body.value(f"select <16 x i1> {values[0]}, {vector} {values[1]}, {vector} {values[2]}"),
        f"b{code}{code}",
        code,
    )


def _compare(code: str, predicate: str) -> Rule:
    vector = ELEMENTS[code].vector
    if code == "d":
        operation = f"fcmp o{predicate}"
    elif predicate == "eq":
        operation = "icmp eq"
    else:
        operation = f"icmp {'s' if code in SIGNED else 'u'}{predicate}"
    return Rule(lambda body, _, values: body.value(f"{operation} {vector} {values[0]}, {values[1]}"), code * 2, "b")


def _of_integers(code: str) -> dict[str, Rule]:
    rules = {
        **{name: _binary(operation, code) for name, operation in (("Add", "add"), ("Sub", "sub"), ("Mul", "mul"))},
        **{f"Bitwise{name}": _binary(name.lower(), code) for name in ("And", "Or", "Xor")},
        "BitwiseNot": _unary(f"xor {{v}} {{x}}, splat ({ELEMENTS[code].scalar} -1)", code),
        "Sum": fold(lambda body, x, y: body.value(f"add {ELEMENTS[code].vector} {x}, {y}"), code),
    }
    if code in SIGNED:
        rules |= {"Abs": _absolute(code), "Neg": _unary("sub {v} zeroinitializer, {x}", code)}
    if code in "li":
        rules["Div"] = Rule(_quotient(code), code * 2, code, cost=16 if code == "l" else 6)
    return rules


def _of_doubles() -> dict[str, Rule]:
    vector = ELEMENTS["d"].vector
    plain = {"Add": "fadd", "Sub": "fsub", "Mul": "fmul", "Div": "fdiv"}
    functions = {"Abs": "fabs", "Ceil": "ceil", "Floor": "floor", "Round": "rint", "Sqrt": "sqrt"}
    return {
        **{name: _binary(operation, "d", cost=6 if name == "Div" else 2) for name, operation in plain.items()},
        **{name: _function_of_doubles(function) for name, function in functions.items()},
        "Neg": _unary("fneg {v} {x}", "d"),
        "Sum": fold(lambda body, x, y: body.value(f"fadd {vector} {x}, {y}"), "d"),
    }


def _function_of_doubles(function: str) -> Rule:
    return Rule(lambda body, _, values: body.intrinsic(function, values[0], code="d"), "d", "d", cost=2)


def _of_any_numbers(code: str) -> dict[str, Rule]:
    return {
        **{name: _compare(code, predicate) for name, predicate in _COMPARISONS.items()},
        "Clip": _clip(code),
        "Max": fold(_bounding(code, largest=True), code),
        "Min": fold(_bounding(code, largest=False), code),
        "Where": _select(code),
    }


def _cast(source: str, target: str) -> Rule:
    """Conversions by C's rules."""
    from_, to = ELEMENTS[source], ELEMENTS[target]
    if source == "f" and target in "au":
        return Rule(_byte_of_float, "f", target, cost=3)
    if source in "fd" and target in "il":
        return Rule(functools.partial(_whole_of_float, source, target), source, target, cost=3)
    if target == "h" and source in "liaub":
        return _half_of_integer(source)
    if target == "b":
        compare = "fcmp une" if source in "fd" else "icmp ne"
        return Rule(lambda body, _, values: body.value(f"{compare} {from_.vector} {values[0]}, zeroinitializer"), source, "b")
    floats = "hfd"
    if source in floats and target in floats:
        instruction = "fpext" if from_.size < to.size else "fptrunc"
    elif target in floats:
        instruction = "sitofp" if source in SIGNED else "uitofp"
    elif from_.size < to.size or source == "b":
        instruction = "sext" if source in SIGNED else "zext"
    else:
        instruction = "trunc" if from_.size > to.size else "bitcast"
    convert = f"{instruction} {from_.vector} {{}} to {to.vector}"
    return Rule(lambda body, _, values: body.value(convert.format(values[0])), source, target)


def _half_of_integer(source: str) -> Rule:
    """By way of float32, as NumPy and onnxruntime go."""
    widen, narrow = _cast(source, "f"), _cast("f", "h")

    def emit(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
        return narrow.emit(body, attributes, [widen.emit(body, attributes, values)])

    return Rule(emit, source, "h")


def _whole_of_float(source: str, target: str, body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    """Integers; the least one for what is out of range, as the processors' instruction gives."""
    from_, to = ELEMENTS[source], ELEMENTS[target]
    beyond = 1 << (8 * to.size - 1)
    is_above = body.value(f"fcmp oge {from_.vector} {values[0]}, splat ({from_.scalar} {float(-beyond)})")
    is_below = body.value(f"fcmp olt {from_.vector} {values[0]}, splat ({from_.scalar} {float(beyond)})")
    fits = body.value(f"and <16 x i1> {is_above}, {is_below}")
    safe = body.value(f"select <16 x i1> {fits}, {from_.vector} {values[0]}, {from_.vector} zeroinitializer")
    whole = body.value(f"fptosi {from_.vector} {safe} to {to.vector}")
    return body.value(f"select <16 x i1> {fits}, {to.vector} {whole}, {to.vector} splat ({to.scalar} {-beyond})")


def _byte_of_float(body: FunctionBody, attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    """The lowest bits of 32-bit integers; 0 for what is out of range."""
    whole = _whole_of_float("f", "i", body, attributes, values)
    return body.value(f"trunc <16 x i32> {whole} to <16 x i8>")


_CONVERTED = {
    **dict.fromkeys("lia", "fhdbliau"),
    "u": "fhdblia",
    "b": "fhdliau",
    "f": "dhbauil" if instruction_set() >= InstructionSet.AVX2 else "dhb",
    "d": "fbil" if instruction_set() >= InstructionSet.AVX2 else "fb",
    "h": "f",
}
"""Type → those it is cast to; what a number gives that is too large is known of these processors only."""


def _typed() -> dict[str, Rule]:
    found: dict[str, Rule] = {"Equal.b": Rule(_same_truth, "bb", "b"), "Where.b": _select("b")}
    for code in "liaud":
        own = _of_doubles() if code == "d" else _of_integers(code)
        found |= {f"{name}.{code}": rule for name, rule in (own | _of_any_numbers(code)).items()}
    for source, targets in _CONVERTED.items():
        for target in targets:
            if source != target:
                found[f"Cast.{source}{target}"] = _cast(source, target)
    return found


def _same_truth(body: FunctionBody, _attributes: Mapping[str, Any], values: Sequence[str]) -> str:
    differs = body.value(f"xor <16 x i1> {values[0]}, {values[1]}")
    return body.value(f"xor <16 x i1> {differs}, splat (i1 true)")


TYPED_RULES: Mapping[str, Rule] = _typed()
"""``Operator.code``, or ``Cast.`` and two codes → how it is computed."""
