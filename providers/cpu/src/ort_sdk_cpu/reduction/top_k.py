"""TopK: a heap as a compiled task, or NumPy's sort."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk_cpu.jit.arguments import Operand
from ort_sdk_cpu.kernel.bindable import BindableKernel, DirectBindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.selecting import SelectingMaker, Selection, selecting_call
from ort_sdk_cpu.kernel.task_writer import TaskWriter, is_worth_a_task, threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer
from ort_sdk_cpu.platform import libraries

from .arguments.top_k import MODULE, TopK
from .select import TopKAlgorithm, select_top_k

__all__: list[str] = []

NAME = "top_k"
WORK = 4
"""Elements of a few instructions each that looking at one takes as long as."""


class _TopKNode:
    """The node: which axis, and whether the largest are wanted."""

    def __init__(self, info: KernelInfo) -> None:
        self.axis, self.sign = info.attribute("axis", -1), 1.0 if info.attribute("largest", 1) else -1.0
        self.k = int(info.attribute("k")) if info.since_version < 10 else None

    def count(self, k: Sequence[HostArray | None]) -> int:
        """k; 0 where the shared set has to raise an error."""
        if self.k is not None:
            return self.k
        given = k[0] if k else None
        return int(given.reshape(())) if given is not None and given.size == 1 else 0

    def takes(self, x: HostArray, count: int) -> bool:
        """Whether the task selects so many of x, in less time than sorting."""
        if x.dtype != np.float32 or not -x.ndim <= self.axis < x.ndim:
            return False
        is_heap = select_top_k(x.shape[self.axis], count, is_float32=True) is TopKAlgorithm.HEAP
        return is_heap and is_worth_a_task(x.size, MODULE, NAME)

    def arguments(self, x: HostArray, count: int) -> tuple[tuple[int | float, ...], int]:
        """What the task's arguments have after the workspace, and threads."""
        axis = self.axis % x.ndim
        outer, size, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
        threads = min(threads_for(x.size * WORK), outer * inner)
        return (outer, size, inner, count, -(-(count * 8 + size * 4) // 64) * 64, self.sign), threads


@bindable("TopK")
def top_k(info: KernelInfo, compute: Any) -> MakeWriter | None:
    """The largest or smallest elements along an axis, and their indices."""
    if info.input_element_type(0) is not TensorElementType.FLOAT or not libraries.compiled_kernels().is_usable:
        return None
    node = _TopKNode(info)

    def write(*arrays: Any) -> None:
        inputs, outputs = arrays[:count_of_inputs], arrays[count_of_inputs:]
        for value, out in zip(compute(*inputs), outputs, strict=False):
            if out is not None:
                np.copyto(out, value)

    count_of_inputs = len(info.inputs)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> tuple[TopKAlgorithm, Writer]:
        x, *k = inputs
        count = node.count(k)
        if not node.takes(x, count) or (k and 1 not in info.constants):
            return TopKAlgorithm.SORT, write
        return TopKAlgorithm.HEAP, _TopKWriter(node, x, count, count_of_inputs, len(outputs), write)

    maker = SelectingMaker(make)
    maker.node = node  # type: ignore[attr-defined]
    return maker


class _TopKWriter(TaskWriter):
    """The task on an array of one shape, with its workspace."""

    def __init__(self, node: _TopKNode, x: HostArray, count: int, inputs: int, outputs: int, otherwise: Writer) -> None:
        arguments, threads = node.arguments(x, count)
        self._workspace = np.empty(int(arguments[4]) * threads, np.uint8)
        operands = (Operand(0), Operand(inputs), Operand(inputs + 1) if outputs > 1 else 0)
        super().__init__(MODULE, NAME, TopK.of_words((*operands, self._workspace, *arguments)), otherwise, threads)

    def __call__(self, *arrays: Any) -> None:
        """Write the outputs. An input that is not contiguous is copied, which takes less time than sorting."""
        super().__call__(np.ascontiguousarray(arrays[0]), *arrays[1:])


@kernel_maker("TopK")
def for_any_shape(_info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel:
    """The kernel over the task, for arrays of any shape."""
    node: _TopKNode = make_writer.node  # type: ignore[attr-defined]

    def call(selected: Selection, x: HostArray, *k: HostArray | None) -> Any:
        count = node.count(k)
        if not node.takes(x, count):
            selected.algorithm = TopKAlgorithm.SORT.value
            return NotImplemented
        selected.algorithm = TopKAlgorithm.HEAP.value
        from ort_sdk_cpu.jit.task import task_function

        x = np.ascontiguousarray(x)
        arguments, threads = node.arguments(x, count)
        shape = list(x.shape)
        shape[node.axis] = count
        values, indices = np.empty(shape, np.float32), np.empty(shape, np.int64)
        workspace = np.empty(int(arguments[4]) * threads, np.uint8)
        task_function(MODULE, NAME)(threads, TopK.of_words((x, values, indices, workspace, *arguments)))
        return values, indices

    return DirectBindableKernel(kernel, make_writer, selecting_call(call))
