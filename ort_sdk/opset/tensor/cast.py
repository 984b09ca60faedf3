"""Cast, CastLike and BitCast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo, TensorElementType
from ort_sdk.opset.definition import operator

from .narrow_types import NARROW_INTEGERS, SATURATING_FLOATS, to_e8m0, to_narrow_float, to_narrow_integer
from .text_numbers import from_text, to_text

__all__ = ["bit_cast", "cast", "cast_like", "host_converter"]

_Convert = Callable[[HostArray], HostArray]

_INTEGERS = NARROW_INTEGERS | {
    TensorElementType.INT8,
    TensorElementType.INT16,
    TensorElementType.INT32,
    TensorElementType.INT64,
    TensorElementType.UINT8,
    TensorElementType.UINT16,
    TensorElementType.UINT32,
    TensorElementType.UINT64,
}


def _widener(source: TensorElementType) -> _Convert | None:
    """Converts ml_dtypes' types to the NumPy type that holds all their values; None for NumPy's own types."""
    if source.numpy_dtype.kind != "V" and source not in NARROW_INTEGERS and source.bit_width >= 16:
        return None
    if source in NARROW_INTEGERS:
        wide: Any = np.uint8 if source in {TensorElementType.UINT4, TensorElementType.UINT2} else np.int8
        return lambda values: values.astype(wide)
    return lambda values: values.astype(np.float32)


def _number_converter(target: TensorElementType, *, saturate: bool, round_mode: str) -> _Convert:
    """Converts arrays of any NumPy number type, with C's wrapping where an integer does not fit."""
    dtype = target.numpy_dtype
    if target in NARROW_INTEGERS:
        return lambda values: to_narrow_integer(_as_integers(values, np.int32), target)
    if target in SATURATING_FLOATS:
        return lambda values: to_narrow_float(values.astype(np.float32), target, saturate=saturate)
    if target is TensorElementType.FLOAT8E8M0:
        return lambda values: to_e8m0(values.astype(np.float32), saturate=saturate, round_mode=round_mode)
    if target in _INTEGERS and target.bit_width < 32:
        return lambda values: _as_integers(values, np.int32).astype(dtype)
    if target is TensorElementType.UINT32:
        return lambda values: _as_integers(values, np.int64).astype(dtype)
    return lambda values: values.astype(dtype)


def _as_integers(values: HostArray, dtype: Any) -> HostArray:
    return values.astype(dtype) if values.dtype.kind == "f" else values


def host_converter(
    source: TensorElementType, target: TensorElementType, *, saturate: bool = True, round_mode: str = "up"
) -> _Convert:
    """A function that converts NumPy arrays from one element type to another by ONNX's rules.

    Args:
        source: element type of the arrays it takes.
        target: element type of the new arrays it returns.
        saturate: values beyond a float8 type's range become its largest number, not infinite or NaN.
        round_mode: ``up``, ``down`` or ``nearest``, for float8e8m0.
    """
    if source is target:
        return lambda values: values.copy()
    steps: list[_Convert] = []
    if source is TensorElementType.STRING:
        as_integers = target in _INTEGERS or target is TensorElementType.BOOL
        steps.append(lambda values: from_text(values, as_integers=as_integers))
    elif (widen := _widener(source)) is not None:
        steps.append(widen)
    if target is TensorElementType.STRING:
        steps.append(to_text)
    else:
        steps.append(_number_converter(target, saturate=saturate, round_mode=round_mode))

    if len(steps) == 1 and source in _INTEGERS | {TensorElementType.BOOL} and target in _INTEGERS:
        return steps[0]

    def convert(values: HostArray) -> HostArray:
        with np.errstate(all="ignore"):
            for step in steps:
                values = step(values)
        return values

    return convert


def _converter(info: KernelInfo, xp: Any, target: TensorElementType) -> Callable[[Array], Array]:
    saturate, round_mode = bool(info.attribute("saturate", 1)), info.attribute("round_mode", "up")
    if not xp.is_host:
        return lambda x: xp.converted(x, target, saturate=saturate, round_mode=round_mode)
    source = info.input_element_type(0)
    if source is None:
        raise InvalidArgument(f"{info.describe()}: the element type of the input is not known")
    return host_converter(source, target, saturate=saturate, round_mode=round_mode)


def _target_attribute(info: KernelInfo) -> TensorElementType:
    """Attribute ``to``: a code, or, in the first version, its name."""
    to = info.attribute("to")
    try:
        return TensorElementType[to.upper()] if isinstance(to, str) else TensorElementType(to)
    except (KeyError, ValueError):
        raise InvalidArgument(f"{info.describe()}: 'to' is {to!r}, which is no element type of ONNX") from None


@operator("Cast", any_type=True)
def cast(info: KernelInfo, xp: Any) -> Compute:
    """The input converted to the element type ``to``."""
    return _converter(info, xp, _target_attribute(info))


@operator("CastLike", any_type=True)
def cast_like(info: KernelInfo, xp: Any) -> Compute:
    """The first input converted to the element type of the second one, whose contents do not matter."""
    target = info.input_element_type(1)
    if target is None:
        raise InvalidArgument(f"{info.describe()}: the element type of 'target_type' is not known")
    convert = _converter(info, xp, target)
    return lambda x, _target: convert(x)


@operator("BitCast", any_type=True)
def bit_cast(info: KernelInfo, xp: Any) -> Compute:
    """The same bits read as another element type of the same width."""
    source, target = info.input_element_type(0), _target_attribute(info)
    if source is None or source.bit_width != target.bit_width or not source.bit_width:
        raise InvalidArgument(
            f"{info.describe()}: cannot read the bits of {'an unknown type' if source is None else source.onnx_name} as "
            f"{target.onnx_name}; the types must have the same width, and not be strings"
        )
    return lambda x: xp.with_bits_of(x, target)
