"""Optional values: the value itself, or None."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator


@operator("Optional", shape_inputs=None, any_type=True, alias=((0, 0),))
def optional(info: KernelInfo, xp: Any) -> Compute:
    """The input as an optional value; an empty one without input."""
    return lambda value=None: value


@operator("OptionalHasElement", any_type=True)
def optional_has_element(info: KernelInfo, xp: Any) -> Compute:
    """Whether an optional value is there, as a bool scalar."""
    asarray, bool_ = xp.asarray, xp.bool
    return lambda value=None: asarray(value is not None, dtype=bool_)


@operator("OptionalGetElement", shape_inputs=None, any_type=True, alias=((0, 0),))
def optional_get_element(info: KernelInfo, xp: Any) -> Compute:
    """The value inside an optional.

    Raises:
        InvalidArgument: when computing, if the optional is empty.
    """

    def compute(value: Array) -> Array:
        if value is None:
            raise InvalidArgument(
                f"{info.describe()}: the optional input is empty; ask OptionalHasElement before taking the element"
            )
        return value

    return compute
