"""GEMM with a constant B, packed once for oneDNN: bias and activation are part of the primitive.

The packed layout does not depend on how many rows A has, so one copy serves every shape.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import NOT_PACKED, HostArray, KernelInfo, NotPacked, PrePackedWeights, RuntimeException, Slot, Tensor
from ort_sdk_cpu.kernel.activation import IDENTITY
from ort_sdk_cpu.kernel.bindable import BindableKernel
from ort_sdk_cpu.kernel.layouts.memory import AnyLayout, contiguous
from ort_sdk_cpu.kernel.onednn import PrimitiveCall, eltwise_of
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer
from ort_sdk_cpu.memory.workspace import workspace_of
from ort_sdk_cpu.onednn.attributes import PrimitiveAttributes
from ort_sdk_cpu.onednn.constants import Algorithm, Argument, binary_post_op
from ort_sdk_cpu.onednn.execution import reordered
from ort_sdk_cpu.onednn.library import library
from ort_sdk_cpu.onednn.memory_descriptor import MemoryDescriptor, any_layout, strided
from ort_sdk_cpu.onednn.post_ops import Binary, Eltwise, PostOp
from ort_sdk_cpu.onednn.primitive import matmul

from .epilogue import Epilogue
from .select import GemmKernel

__all__ = ["OneDnnGemm", "packed_layout"]

WEIGHT = 1
TYPICAL_ROWS = 128
"""The layout is asked for with so many rows; it does not depend on them."""
FLOAT = np.dtype(np.float32)


def packed_layout(k: int, n: int) -> MemoryDescriptor | None:
    """The layout oneDNN chooses for a right operand; None if it has no fast GEMM."""
    return _chosen_layout(k, n, library().thread_count)


@functools.lru_cache(maxsize=1024)
def _chosen_layout(k: int, n: int, _threads: int) -> MemoryDescriptor | None:
    src, dst = contiguous((TYPICAL_ROWS, k), FLOAT), contiguous((TYPICAL_ROWS, n), FLOAT)
    primitive = matmul(src, any_layout((k, n), FLOAT), None, dst)
    return None if primitive is None else primitive.layout(Argument.WEIGHTS)


def _attributes(epilogue: Epilogue, n: int) -> PrimitiveAttributes:
    post_ops: list[PostOp] = []
    if epilogue.alpha != 1:
        post_ops.append(Eltwise(Algorithm.LINEAR, epilogue.alpha))
        if epilogue.bias is not None:
            post_ops.append(Binary(Algorithm.BINARY_ADD, contiguous((1, n), FLOAT)))
    if epilogue.activation != IDENTITY:
        post_ops.append(eltwise_of(epilogue.activation))
    return PrimitiveAttributes(tuple(post_ops))


class OneDnnGemm(BindableKernel):
    """A kernel whose constant right operand oneDNN keeps in its own layout.

    Args:
        kernel: what computes step by step if the weight is not packed.
        make_writer: the same for programs.
        info: the node.
        transposed: whether B is (N, K).
        epilogue: what follows.
    """

    def __init__(self, kernel: Any, make_writer: MakeWriter, info: KernelInfo, *, transposed: bool, epilogue: Epilogue) -> None:
        super().__init__(kernel, make_writer)
        shape = tuple(info.constants[WEIGHT].shape)
        self._k, self._n = reversed(shape) if transposed else shape
        self._transposed = transposed
        self._epilogue = epilogue
        self._workspace = workspace_of(info)
        self._packed: HostArray | None = None

    def packing_identity(self, input_index: int) -> str | None:
        """OneDNN's version and instruction set, which decide the layout, and the weight's layout."""
        if input_index != WEIGHT:
            return None
        onednn = library()
        return f"onednn-{onednn.version}-{onednn.instruction_set}-matmul-{'nk' if self._transposed else 'kn'}"

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """Reorder the weight."""
        target = packed_layout(self._k, self._n) if input_index == WEIGHT else None
        if target is None:
            return NOT_PACKED
        steps = (1, self._k) if self._transposed else (self._n, 1)
        buffer = reordered(tensor.numpy(), strided((self._k, self._n), FLOAT, steps), target)
        if buffer is None:
            return NOT_PACKED
        buffer.flags.writeable = False
        return PrePackedWeights((buffer,))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Read the weight from the buffer."""
        self._packed = weights.buffers[0]

    @property
    def algorithm(self) -> str | None:
        """OneDNN's, if the weight is packed."""
        return None if self._packed is None else GemmKernel.ONEDNN.value

    @property
    def compute(self) -> Callable[..., Any]:
        """The result by a primitive; the shared set's function if the weight is not packed."""
        return self._compute if self._packed is None else self._run

    def _run(self, a: HostArray, _weight: Any, *others: Any) -> HostArray:
        out = np.empty((*a.shape[:-1], self._n), FLOAT)
        self._writer(a.shape)(a, None, *others, out)
        return out

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """As for every bindable kernel; arrays that never change are given to the primitive once."""
        first, out = inputs[0], outputs[0]
        is_fixed = self._packed is not None and first.is_fixed and out.is_fixed and self._epilogue.finish is None
        if not is_fixed or not first.array.flags.c_contiguous or not first.array.size:
            return super().bind(inputs, outputs)
        rows = first.array.reshape(-1, self._k)
        return self._call(len(rows)).bind_arrays(rows, out.array)

    def make_writer(self, inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        """The primitive, for as many rows; the shared set's writer if the weight is not packed."""
        return super().make_writer(inputs, outputs) if self._packed is None else self._writer(inputs[0].shape)

    def _writer(self, shape: tuple[int, ...]) -> Writer:
        rows, k, finish, workspace = math.prod(shape[:-1]), self._k, self._epilogue.finish, self._workspace
        if not rows:
            return lambda *_arrays: None
        call = self._call(rows)

        def write(a: HostArray, _weight: Any, *others: Any) -> None:
            out = others[-1]
            if not a.flags.c_contiguous:
                dense = workspace.array("dense", a.shape, FLOAT)
                np.copyto(dense, a)
                a = dense
            call.run(a.reshape(rows, k), out)
            if finish is not None:
                finish(out, others[:-1])

        return write

    def _call(self, rows: int) -> PrimitiveCall:
        epilogue, bias = self._epilogue, contiguous((1, self._n), FLOAT)
        src, dst = contiguous((rows, self._k), FLOAT), contiguous((rows, self._n), FLOAT)
        weights = packed_layout(self._k, self._n)
        has_plain_bias = epilogue.bias is not None and epilogue.alpha == 1
        attributes = _attributes(epilogue, self._n)
        primitive = None if weights is None else matmul(src, weights, bias if has_plain_bias else None, dst, attributes)
        if weights is None or primitive is None or self._packed is None:
            raise RuntimeException(f"oneDNN has no fast GEMM of ({rows}, {self._k}) and ({self._k}, {self._n})")
        constants: list[tuple[int, AnyLayout, HostArray]] = [(int(Argument.WEIGHTS), weights, self._packed)]
        if epilogue.bias is not None:
            constants.append((int(Argument.BIAS) if has_plain_bias else binary_post_op(1), bias, epilogue.bias))
        return PrimitiveCall(primitive, [(Argument.SRC, src, src), (Argument.DST, dst, dst)], constants, self._workspace)
