"""Steps that replace control flow in a program: joining values, slices, and choosing between values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import Array, KernelInfo, Stacking, TensorElementType, element_type_of, tensor_type
from ort_sdk.api.step_expansion import ExpandedKernel, ExpandingProgram

__all__ = ["chosen", "concatenated", "piece", "stacked_values"]


def concatenated(program: ExpandingProgram, info: KernelInfo, xp: Any, values: Sequence[int], axis: int) -> int:
    """Tensors joined along an axis counted from the front."""
    return _step(program, info, xp, "Concat", values, lambda *tensors: xp.concat(tensors, axis=axis), axis=axis)


def stacked_values(
    program: ExpandingProgram, info: KernelInfo, xp: Any, values: Sequence[int], axis: int, stacking: Stacking | None = None
) -> int:
    """Tensors of one shape joined along a new axis counted from the front, on the device where they are."""
    if stacking is not None:
        unsqueeze, provider = stacking.unsqueezing(axis), stacking.provider
        parts = [program.launch("Unsqueeze", unsqueeze, [value], {"axes": [axis]}, provider=provider) for value in values]
        return program.launch("Concat", stacking.joining(len(values), axis), parts, {"axis": axis}, provider=provider)
    longer = (*[slice(None)] * axis, None, ...)
    # A view, which takes no call in a program.
    kernel = ExpandedKernel(lambda tensor: tensor[longer])
    return concatenated(program, info, xp, [program.launch("Unsqueeze", kernel, [value]) for value in values], axis)


def piece(program: ExpandingProgram, value: int, axis: int, index: int | slice) -> int:
    """What a tensor has at a position, or between two, along an axis counted from the front."""
    where = (*[slice(None)] * axis, index, ...)
    return program.launch("Slice", ExpandedKernel(lambda tensor: tensor[where]), [value])


def chosen(program: ExpandingProgram, info: KernelInfo, xp: Any, condition: int, values: Sequence[int]) -> int:
    """The first of two tensors of one shape and type where a condition of one element holds, else the second."""
    return _step(program, info, xp, "Where", [condition, *values], functools.partial(_where, xp))


def _element_type(xp: Any, array: Array) -> TensorElementType:
    """Of an array of the library, or of one on the host."""
    found: TensorElementType = element_type_of(array) if isinstance(array, np.ndarray) else xp.element_type(array)
    return found


def _where(xp: Any, condition: Array, first: Array, second: Array) -> Array:
    return xp.where(xp.reshape(condition, ()), first, second)


def _step(
    program: ExpandingProgram,
    info: KernelInfo,
    xp: Any,
    op_type: str,
    inputs: Sequence[int],
    compute: Callable[..., Any],
    **attributes: Any,
) -> int:
    """A step with the provider's kernel, or with one that only computes."""
    types = [tensor_type(_element_type(xp, program.value(value))) for value in inputs]
    provider = info.execution_provider
    made = None if provider is None else provider.step_kernel(op_type, types, attributes)
    return program.launch(op_type, ExpandedKernel(compute) if made is None else made, inputs, attributes)
