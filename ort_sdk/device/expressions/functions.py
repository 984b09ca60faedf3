"""The element-wise functions: how each is written in the device language."""

from __future__ import annotations

from ort_sdk.api.data_classes import dataclass

__all__ = ["FUNCTIONS", "Function"]

CHEAP, DEAR = 1, 8
"""What computing a function again costs, next to writing an element to memory and reading it: about one, and more."""


@dataclass(frozen=True, slots=True)
class Function:
    """An element-wise function.

    Its text has the operands as ``{0}``, ``{1}`` …, the type of the first one's variable as ``{T}``. Texts with vectors use operators,
    functions that take vectors in OpenCL C, and ``SELECT``.
    """

    name: str
    text: str
    cost: int = CHEAP
    takes_vectors: bool = True
    """Whether the text also computes vectors of float32, or of masks."""
    integer_text: str | None = None
    """The text for integers, where it is another."""


def _table(*functions: Function) -> dict[str, Function]:
    return {function.name: function for function in functions}


def _calls(names: str, cost: int, *, takes_vectors: bool = True) -> list[Function]:
    return [Function(name, f"{name}({{0}})", cost, takes_vectors) for name in names.split()]


FUNCTIONS = _table(
    Function("add", "{0} + {1}"),
    Function("subtract", "{0} - {1}"),
    Function("multiply", "{0} * {1}"),
    Function("divide", "{0} / {1}", integer_text="{T}_quotient({0}, {1})"),
    Function("floor_divide", "floor({0} / {1})", integer_text="{T}_floor_quotient({0}, {1})"),
    Function("remainder", "{T}_remainder({0}, {1})", DEAR, False),
    Function("fmod", "fmod({0}, {1})", DEAR, integer_text="{T}_fmod({0}, {1})"),
    Function("pow", "pow({0}, {1})", DEAR, integer_text="{T}_power({0}, {1})"),
    Function("negative", "-{0}"),
    Function("abs", "fabs({0})", integer_text="{0} < 0 ? -{0} : {0}"),
    Function("sign", "{0} > 0 ? 1 : {0} < 0 ? -1 : {0}", takes_vectors=False),
    Function("square", "{0} * {0}"),
    Function("reciprocal", "1.0f / {0}", integer_text="{T}_quotient(1, {0})"),
    Function("minimum", "SELECT(({0} < {1}) | ({0} != {0}), {0}, {1})", integer_text="{0} < {1} ? {0} : {1}"),
    Function("maximum", "SELECT(({0} > {1}) | ({0} != {0}), {0}, {1})", integer_text="{0} > {1} ? {0} : {1}"),
    Function("where", "SELECT({0}, {1}, {2})"),
    Function("equal", "{0} == {1}"),
    Function("not_equal", "{0} != {1}"),
    Function("less", "{0} < {1}"),
    Function("less_equal", "{0} <= {1}"),
    Function("greater", "{0} > {1}"),
    Function("greater_equal", "{0} >= {1}"),
    Function("logical_and", "{0} & {1}"),
    Function("logical_or", "{0} | {1}"),
    Function("logical_xor", "{0} ^ {1}"),
    Function("logical_not", "{0} == 0"),
    Function("bitwise_and", "{0} & {1}", takes_vectors=False),
    Function("bitwise_or", "{0} | {1}", takes_vectors=False),
    Function("bitwise_xor", "{0} ^ {1}", takes_vectors=False),
    Function("bitwise_invert", "~{0}", takes_vectors=False),
    Function("bitwise_left_shift", "{T}_shift_left({0}, {1})", takes_vectors=False),
    Function("bitwise_right_shift", "{T}_shift_right({0}, {1})", takes_vectors=False),
    Function("isnan", "{0} != {0}"),
    Function("isinf", "fabs({0}) == INFINITY"),
    Function("isfinite", "fabs({0}) < INFINITY"),
    Function("sigmoid", "1.0f / (1.0f + exp(-{0}))", DEAR),
    *_calls("floor ceil trunc rint", CHEAP),
    *_calls("exp log sqrt rsqrt tanh erf sin cos tan asin acos atan sinh cosh asinh acosh atanh", DEAR),
    *_calls("log1p expm1 log2 log10", DEAR),
    Function("copysign", "copysign({0}, {1})"),
    Function("atan2", "atan2({0}, {1})", DEAR),
    Function("hypot", "hypot({0}, {1})", DEAR),
    *(
        Function(f"e8m0_{mode}{suffix}", f"round_e8m0({{0}}, {number}, {saturates})", takes_vectors=False)
        for number, mode in enumerate(("up", "down", "nearest"))
        for saturates, suffix in enumerate(("_beyond", ""))
    ),
    # What a cast's text is depends on both types: the generator writes it.
    Function("cast", ""),
)
