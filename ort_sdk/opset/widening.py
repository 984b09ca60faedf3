"""Arithmetic on types outside the array API standard: compute in a declared wider type, cast back once.

NumPy over ml_dtypes drifts silently otherwise (bfloat16 @ bfloat16 gives float32), and float16 sums lose digits.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, NodeArg, Tensor, TensorElementType, tensor_type

from .namespace import ArrayNamespace

__all__ = ["HALF_TYPES", "mixes_half_and_float", "widened"]

HALF_TYPES = frozenset({TensorElementType.FLOAT16, TensorElementType.BFLOAT16})


def widened(factory: Callable[[KernelInfo, Any], Any], info: KernelInfo, namespace: ArrayNamespace) -> Any:
    """The factory's kernel, with narrow tensor inputs widened before it and its outputs narrowed after it."""
    if info.element_types().isdisjoint(_narrow_types(namespace)):
        return factory(info, namespace)
    wide_inputs = _casts(info.inputs, namespace)
    narrow_outputs = {
        index: argument.element_type
        for index, argument in enumerate(info.outputs)
        if argument is not None and argument.element_type is not None and _is_narrow(argument.element_type, namespace)
    }
    kernel = factory(_widened_info(info, namespace), namespace)
    inner = getattr(kernel, "compute", kernel)

    def compute(*inputs: Any) -> Any:
        arguments = list(inputs)
        for index, element_type in wide_inputs.items():
            if index < len(arguments) and arguments[index] is not None:
                arguments[index] = _cast(arguments[index], element_type, namespace)
        outputs = inner(*arguments)
        if not narrow_outputs:
            return outputs
        if not isinstance(outputs, tuple):
            return _cast(outputs, narrow_outputs[0], namespace) if 0 in narrow_outputs else outputs
        return tuple(
            _cast(output, narrow_outputs[index], namespace) if index in narrow_outputs and output is not None else output
            for index, output in enumerate(outputs)
        )

    return compute


def mixes_half_and_float(info: KernelInfo) -> bool:
    """Whether a node that moves elements gives float and takes, among others, float16 or bfloat16."""
    inputs = {None if argument is None else argument.element_type for argument in info.inputs}
    outputs = {None if argument is None else argument.element_type for argument in info.outputs}
    return TensorElementType.FLOAT in outputs and not HALF_TYPES.isdisjoint(inputs)


def _cast(array: Any, element_type: TensorElementType, namespace: ArrayNamespace) -> Any:
    """The array converted; inputs and outputs on the host are NumPy's, whatever the library."""
    if isinstance(array, np.ndarray) and not namespace.is_host:
        return array.astype(element_type.numpy_dtype, copy=False)
    return namespace.astype(array, element_type)


@functools.lru_cache(maxsize=4)  # asked for every node, and of few libraries, which it keeps
def _narrow_types(namespace: ArrayNamespace) -> frozenset[TensorElementType | None]:
    return frozenset(element_type for element_type in TensorElementType if _is_narrow(element_type, namespace))


def _is_narrow(element_type: TensorElementType, namespace: ArrayNamespace) -> bool:
    return namespace.compute_type(element_type) is not element_type


def _casts(arguments: tuple[NodeArg | None, ...], namespace: ArrayNamespace) -> dict[int, TensorElementType]:
    casts = {}
    for index, argument in enumerate(arguments):
        element_type = None if argument is None else argument.element_type
        if element_type is not None and _is_narrow(element_type, namespace):
            casts[index] = namespace.compute_type(element_type)
    return casts


def _widened_info(info: KernelInfo, namespace: ArrayNamespace) -> KernelInfo:
    return dataclasses.replace(
        info,
        inputs=tuple(_widened_argument(argument, namespace) for argument in info.inputs),
        outputs=tuple(_widened_argument(argument, namespace) for argument in info.outputs),
        constants={index: _WidenedTensor(tensor, namespace) for index, tensor in info.constants.items()},
    )


def _widened_argument(argument: NodeArg | None, namespace: ArrayNamespace) -> NodeArg | None:
    if argument is None or argument.element_type is None:
        return argument
    return dataclasses.replace(argument, type=tensor_type(namespace.compute_type(argument.element_type)))


class _WidenedTensor:
    """A constant seen through its wider type."""

    def __init__(self, tensor: Tensor, namespace: ArrayNamespace) -> None:
        self._tensor = tensor
        self.element_type = namespace.compute_type(tensor.element_type)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._tensor.shape

    @property
    def nbytes(self) -> int:
        return self.element_type.nbytes(int(np.prod(self.shape, dtype=np.int64)))

    def numpy(self) -> HostArray:
        return self._tensor.numpy().astype(self.element_type.numpy_dtype, copy=False)

    def packed(self) -> HostArray:
        return np.ascontiguousarray(self.numpy()).reshape(-1).view(np.uint8)
