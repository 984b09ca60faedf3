"""Operators that are one ufunc: bound as a call of it with the output as an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.kernel.bindable import bindable
from ort_sdk_cpu.kernel.eager import declare_eager_calls
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer

__all__: list[str] = []

declare_eager_calls("elementwise.eager", "Add", "Div", "Mul", "Sub")

_UNARY = {
    "Abs": np.absolute,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "BitwiseNot": np.invert,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Exp": np.exp,
    "Floor": np.floor,
    "IsNaN": np.isnan,
    "Log": np.log,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Round": np.rint,
    "Sign": np.sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Tan": np.tan,
    "Tanh": np.tanh,
}

_BINARY = {
    "Add": np.add,
    "And": np.logical_and,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "Equal": np.equal,
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Mul": np.multiply,
    "Or": np.logical_or,
    "Sub": np.subtract,
    "Xor": np.logical_xor,
}

_VARIADIC = {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}


@bindable(*_UNARY, elementwise=True)
def unary(info: KernelInfo, _compute: Any) -> MakeWriter:
    """A function of one input."""
    function = _UNARY[info.op_type]
    return lambda _inputs, _outputs: function


@bindable(*_BINARY, elementwise=True)
def binary(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """A function of two inputs that broadcast as NumPy's do."""
    return _broadcast(info, _BINARY[info.op_type])


@bindable("Div", elementwise=True)
def div(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """Quotients; those of integers are truncated."""
    kind = _kind(info)
    function = {"f": np.divide, "i": _truncated, "u": np.floor_divide}.get(kind)
    return None if function is None else _broadcast(info, function)


def _truncated(a: HostArray, b: HostArray, out: HostArray) -> None:
    """Quotients rounded towards zero: what is divided is a multiple once the remainder, which has its sign, is taken off."""
    np.fmod(a, b, out=out)
    np.subtract(a, out, out=out)
    np.floor_divide(out, b, out=out)


@bindable("Pow", elementwise=True)
def power(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """Powers of floats by floats of the same type; constant exponents are repeated products, which the shared set computes."""
    if _kind(info) != "f" or info.input_element_type(0) is not info.input_element_type(1):
        return None
    if info.constant_input(1) is None:
        return _broadcast(info, np.power)
    return lambda _inputs, _outputs: lambda x, exponent, out: np.copyto(out, compute(x, exponent))


@bindable("Reciprocal", elementwise=True)
def reciprocal(_info: KernelInfo, _compute: Any) -> MakeWriter:
    """1 / x."""
    return lambda _inputs, _outputs: lambda x, out: np.divide(1.0, x, out)


@bindable(*_VARIADIC, elementwise=True)
def variadic(info: KernelInfo, _compute: Any) -> MakeWriter:
    """A function of two inputs, applied from left to right."""
    function = _VARIADIC[info.op_type]
    return lambda inputs, _outputs: _folded(function, len(inputs))


def _folded(function: np.ufunc, count: int) -> Writer:
    def fold(first: HostArray, second: HostArray, *others: HostArray) -> None:
        *others_left, out = others
        function(first, second, out=out)
        for other in others_left:
            function(out, other, out=out)

    if count == 1:
        return lambda x, out: np.copyto(out, x)
    return function if count == 2 else fold


@bindable("Mean", elementwise=True)
def mean(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """The sum of all inputs over their count."""
    if info.since_version < 8:
        return None

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        total, count = _folded(np.add, len(inputs)), float(len(inputs))

        def write(*arrays: HostArray) -> None:
            total(*arrays)
            np.divide(arrays[-1], count, out=arrays[-1])

        return write

    return make


@bindable("PRelu", elementwise=True)
def prelu(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """X, and slope · x where x is below zero."""
    if _kind(info) != "f" or info.since_version < 7:
        return None

    def write(x: HostArray, slope: HostArray, out: HostArray) -> None:
        np.multiply(x, slope, out)
        np.copyto(out, x, where=~(x < 0))

    return lambda _inputs, _outputs: write


def _broadcast(info: KernelInfo, function: Any) -> MakeWriter | None:
    return None if info.since_version < 7 else lambda _inputs, _outputs: function


def _kind(info: KernelInfo) -> str:
    element_type = info.input_element_type(0)
    return "" if element_type is None else str(element_type.numpy_dtype.kind)
