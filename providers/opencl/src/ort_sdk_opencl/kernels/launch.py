"""What the kernels share: sources read from beside the modules, float32 registration, launches."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.cltypes

from ort_sdk.api import InvalidArgument, KernelFactory, KernelInfo, KernelPredicate, KernelRegistry, OpKernel, schema_versions
from ort_sdk_opencl.array import OpenClArray, empty

__all__ = ["FLOAT", "MAX_RANK", "OpenClKernel", "decline_high_rank", "int8_vector", "register_float", "row_major_strides"]

FLOAT = "tensor(float)"
MAX_RANK = 8
"""Dimensions that the kernels' index vectors hold."""


class OpenClKernel(OpKernel):
    """Base: one OpenCL kernel object, launched on the provider's queue.

    Args:
        info: node the kernel is for; its provider owns the queue.
        module: OpenCL C file beside the Python module.
        entry: kernel function in it.
    """

    deterministic = True
    shape_inputs: tuple[int, ...] | None = ()

    def __init__(self, info: KernelInfo, module: str, entry: str) -> None:
        self.info = info
        self.context = info.execution_provider.context
        self._kernel = self.context.kernel(_source(module), entry)
        self._lock = threading.Lock()

    def launch(self, elements: int, *arguments: Any) -> None:
        """Queue the kernel with one work item per element; nothing for none."""
        if not elements:
            return
        plain = [argument.buffer if isinstance(argument, OpenClArray) else argument for argument in arguments]
        # Setting arguments and queueing are two calls on one object, which runs on several threads may share.
        with self._lock:
            self._kernel.set_args(*plain)
            cl.enqueue_nd_range_kernel(self.context.queue, self._kernel, (elements,), None)

    def new(self, shape: tuple[int, ...]) -> OpenClArray:
        """A new float32 array."""
        return empty(self.context, shape, np.dtype(np.float32))


@functools.cache
def _source(module: str) -> str:
    return resources.files(__package__).joinpath(f"{module}.cl").read_text(encoding="utf-8")


def register_float(
    registry: KernelRegistry,
    op_type: str,
    factory: KernelFactory,
    *,
    since: int = 1,
    host_inputs: Iterable[int] = (),
    alias: Iterable[tuple[int, int]] = (),
    when: KernelPredicate | None = None,
) -> None:
    """Register a factory for float32, for every version of an ONNX operator from ``since`` on."""
    for version in schema_versions(op_type):
        if version >= since:
            register = registry.kernel(op_type, version, {"T": [FLOAT]}, host_inputs=host_inputs, alias=alias, when=when)
            register(factory)


def decline_high_rank(info: KernelInfo) -> str | None:
    """Predicate: the index vectors hold eight dimensions. A rank known only at run time is checked there."""
    highest = max((argument.rank or 0 for argument in info.inputs if argument is not None), default=0)
    return f"rank {highest} is over {MAX_RANK}" if highest > MAX_RANK else None


def int8_vector(values: Sequence[int]) -> Any:
    """Up to eight integers as an OpenCL ``int8``, zeros behind.

    Raises:
        InvalidArgument: there are more.
    """
    if len(values) > MAX_RANK:
        raise InvalidArgument(f"{len(values)} dimensions, {list(values)}: the OpenCL kernels take at most {MAX_RANK}")
    return pyopencl.cltypes.make_int8(*values, *([0] * (MAX_RANK - len(values))))


def row_major_strides(shape: Sequence[int]) -> list[int]:
    """Strides in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides
