"""What the control-flow operators share: conditions, fresh copies, and values gathered over iterations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, InvalidArgument, KernelInfo, Stacking, Subgraph, tensor_type_element

__all__ = ["fresh", "gathered_output", "is_true", "owned", "scan_axis", "stacking_of"]


def is_true(info: KernelInfo, xp: Any, condition: Array) -> bool:
    """Truth of a condition of one element, of any shape, of the library or of the host.

    Raises:
        InvalidArgument: it has not exactly one element.
    """
    value = condition if isinstance(condition, np.ndarray | np.generic) else xp.to_host(condition)
    if value.size != 1:
        raise InvalidArgument(f"{info.describe()}: the condition must have one element; its shape is {tuple(value.shape)}")
    return bool(value.item())


def fresh(xp: Any, value: Any) -> Any:
    """A copy of a tensor, of each tensor of a sequence, or of an optional value; an array of a device as it is."""
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, list):
        return [fresh(xp, item) for item in value]
    if xp.is_host and not isinstance(value, np.ndarray | np.generic):
        return value
    return xp.asarray(value, copy=True)


def owned(xp: Any, body: Subgraph, outputs: Sequence[Any], first: int = 0) -> list[Any]:
    """The outputs of a body from ``first`` on, copied where they may share memory with what the body was given."""
    flags = body.output_is_owned[first : first + len(outputs)]
    return [value if is_owned else fresh(xp, value) for value, is_owned in zip(outputs, flags, strict=True)]


def stacking_of(body: Subgraph, output: int) -> Stacking | None:
    """How an output of a body is stacked on the device where it is left; None of one that is given out on the host."""
    stackings: Mapping[int, Stacking] = getattr(body, "stackings", {})
    return stackings.get(output)


def gathered_output(info: KernelInfo, xp: Any, body: Subgraph, output: int, values: Sequence[Array], axis: int) -> Array:
    """A scan output: what an output of the body was in each iteration, joined along a new axis, which may be negative.

    Raises:
        InvalidArgument: their shapes differ, there is no such axis, or there are none and the body does not declare a type.
    """
    stacking = stacking_of(body, output)
    if not values:
        empty = empty_scan_output(info, xp, body, output, axis)
        return empty if stacking is None else stacking.placed(empty)
    name = body.output_names[output]
    shape = tuple(values[0].shape)
    for iteration, value in enumerate(values):
        if tuple(value.shape) != shape:
            raise InvalidArgument(
                f"{info.describe()}: scan output '{name}' has shape {tuple(value.shape)} in iteration {iteration} and {shape} in "
                "the first; it must be the same in all"
            )
    place = scan_axis(info, axis, len(shape) + 1, name)
    if stacking is None:
        return xp.stack(values, axis=place)
    unsqueeze = stacking.unsqueezing(place).compute
    return stacking.joining(len(values), place).compute(*[unsqueeze(value) for value in values])


def empty_scan_output(info: KernelInfo, xp: Any, body: Subgraph, output: int, axis: int) -> Array:
    """A scan output of no iterations: the body's declared shape, unknown dimensions 0, and a new axis of size 0.

    Raises:
        InvalidArgument: the body does not declare the output's type, or there is no such axis.
    """
    type_string = body.output_types[output]
    element_type = None if type_string is None else tensor_type_element(type_string)
    if element_type is None:
        raise InvalidArgument(
            f"{info.describe()}: scan output '{body.output_names[output]}' has type {type_string}; it must be a tensor"
        )
    shape = [size if isinstance(size, int) else 0 for size in body.output_shapes[output] or ()]
    shape.insert(scan_axis(info, axis, len(shape) + 1, body.output_names[output]), 0)
    return xp.zeros(tuple(shape), dtype=xp.dtype(element_type))


def scan_axis(info: KernelInfo, axis: int, rank: int, name: str) -> int:
    """The axis counted from the front.

    Raises:
        InvalidArgument: a value of that rank has no such axis.
    """
    if not -rank <= axis < rank:
        raise InvalidArgument(f"{info.describe()}: axis {axis} of '{name}' is outside [{-rank}, {rank - 1}] for rank {rank}")
    return axis % rank
