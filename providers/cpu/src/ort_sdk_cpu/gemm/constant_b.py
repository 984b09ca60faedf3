"""GEMM with a constant B: packed into panels if it is large, else read in place, in whatever file and at whatever address.

Matrices of small model files that get no panels are copied to where cache lines begin: few rows take a tenth less time then.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import (
    NOT_PACKED,
    TENSOR_BYTES,
    HostArray,
    InvalidArgument,
    KernelInfo,
    NotPacked,
    PrePackedWeights,
    Slot,
    Tensor,
    TensorElementType,
)
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.bindable import BindableKernel
from ort_sdk_cpu.kernel.copy import CopyWriter
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer
from ort_sdk_cpu.memory.result_pool import ResultAllocator
from ort_sdk_cpu.memory.weight_arena import aligned_copy, is_worth_aligning
from ort_sdk_cpu.memory.workspace import workspace_of

from .epilogue import Epilogue
from .packing import is_worth_packing, packed_panels, panels_identity
from .plan import GemmCall, GemmFunction, epilogue_words
from .select import BLayout

__all__ = ["ConstantBGemm", "RowGemm"]

WEIGHT = 1
FLOAT = np.dtype(np.float32)
MOST_COPIED_BYTES = 1 << 24
"""Of an A whose rows are not contiguous (NHWC read as NCHW), up to which a call keeps memory for a contiguous copy."""


@dataclass(frozen=True, slots=True)
class RowGemm:
    """A GEMM of any number of rows."""

    sizes: BLayout
    weight: HostArray
    bias: HostArray | None
    epilogue_words: tuple[int | float, ...]
    """As the task takes it."""
    beta: float = 0.0
    """Factor of the third input, rows that are added to the result; 0 if nothing but the bias is."""


class ConstantBGemm(BindableKernel):
    """A kernel whose constant right operand a task reads: panels of it, or its bytes, even if no element is aligned there.

    Args:
        kernel: what is known of the node.
        make_writer: the shared set's.
        info: the node; its input 1 is a constant matrix of float32 or float16.
        transposed: whether B is (N, K).
        epilogue: what follows.
    """

    def __init__(self, kernel: Any, make_writer: MakeWriter, info: KernelInfo, *, transposed: bool, epilogue: Epilogue) -> None:
        super().__init__(kernel, make_writer)
        shape = tuple(info.constants[WEIGHT].shape)
        self._k, self._n = reversed(shape) if transposed else shape
        self._transposed, self._epilogue, self._workspace = transposed, epilogue, workspace_of(info)
        weight = info.constants[WEIGHT]
        self._may_pack = is_worth_packing(info, weight)
        # Not before a GEMM is run.
        self.packs_in_first_run = self._may_pack or is_worth_aligning(weight)
        self._weight: HostArray | None = None
        self._results = ResultAllocator()
        is_float16 = weight.element_type is TensorElementType.FLOAT16
        self._set_layout(BLayout(self._k, self._n, transposed, is_float16))

    def packing_identity(self, input_index: int) -> str | None:
        """The panels, or the bytes, if they are copied."""
        if input_index != WEIGHT:
            return None
        if self._may_pack:
            return panels_identity(transposed=self._transposed)
        return TENSOR_BYTES if self.packs_in_first_run else None

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """B's bytes as they are; or panels or a copy of them."""
        if input_index != WEIGHT:
            return NOT_PACKED
        if self._may_pack:
            return PrePackedWeights((packed_panels(tensor, allocator, transposed=self._transposed),))
        return PrePackedWeights((aligned_copy(tensor, allocator) if is_worth_aligning(tensor) else tensor.packed(),))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Read the weight there."""
        self._weight = weights.buffers[0]
        if self._may_pack:
            self._set_layout(BLayout(self._k, self._n, is_packed=True))

    def _set_layout(self, sizes: BLayout) -> None:
        self._layout, self._function = sizes, GemmFunction(sizes, self._workspace, **self._options)

    @property
    def algorithm(self) -> str | None:
        """Of the last run, or of the last program that was bound."""
        found = self._function.algorithm
        return None if found is None else found.value

    @property
    def compute(self) -> Callable[..., Any]:
        """The result, in a new array."""
        return self._run

    def _run(self, a: HostArray, *others: Any) -> Any:
        *outer, k = a.shape
        out = self._results.empty((*outer, self._n))
        if k != self._k:
            raise InvalidArgument(f"A has shape {a.shape}, but the constant B has {self._k} rows: A's last axis must be as long")
        rows, weight, finish = math.prod(outer), self._weight, self._epilogue.finish
        if not rows:
            return out
        right = np.ascontiguousarray(others[0]) if weight is None else weight
        self._function(rows, a if a.flags.c_contiguous else np.ascontiguousarray(a), right, self._epilogue.bias, out)
        if finish is not None:
            finish(out, others[1:])
        return out

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """As for every bindable kernel; arrays that never change are given to the task once."""
        first, out = inputs[0], outputs[0]
        weight, is_fixed = self._weight, first.is_fixed and out.is_fixed and self._epilogue.finish is None
        if weight is None or not is_fixed or not first.array.size or not out.array.flags.c_contiguous:
            return super().bind(inputs, outputs)
        a = first.array
        if a.flags.c_contiguous:
            return self._call(a.shape).bind_arrays(a, weight, self._epilogue.bias, out.array)
        if a.nbytes > MOST_COPIED_BYTES:
            return super().bind(inputs, outputs)
        rows = np.empty(a.shape, FLOAT)
        copy = CopyWriter(lambda source, target: [(target, source)]).bind_arrays(a, rows)
        return in_sequence([copy, self._call(a.shape).bind_arrays(rows, weight, self._epilogue.bias, out.array)])

    @property
    def row_gemm(self) -> RowGemm | None:
        """The GEMM as a task needs it; None if it is not one task."""
        weight, beta = self._weight, self._epilogue.beta
        if weight is None or (self._epilogue.finish is not None and not beta):
            return None
        return RowGemm(self._layout, weight, self._epilogue.bias, epilogue_words(**self._options), beta)

    def _call(self, shape: tuple[int, ...]) -> GemmCall:
        call = GemmCall(self._layout.problem(math.prod(shape[:-1])), self._workspace, **self._options)
        self._function.algorithm = call.algorithm
        return call

    @property
    def _options(self) -> dict[str, Any]:
        return {"alpha": self._epilogue.alpha, "activation": self._epilogue.activation}

    def make_writer(self, inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        """The task, for as many rows."""
        shape = inputs[0].shape
        if not math.prod(shape):
            return self._write_nothing
        return functools.partial(self._write, self._call(shape))

    def _write_nothing(self, _a: HostArray, *arrays: Any) -> None:
        """No rows."""

    def _write(self, call: GemmCall, a: HostArray, weight: HostArray, *others: Any) -> None:
        out, finish = others[-1], self._epilogue.finish
        right = np.ascontiguousarray(weight) if self._weight is None else self._weight
        result = out if out.flags.c_contiguous else np.empty(out.shape, FLOAT)
        call(np.ascontiguousarray(a), right, self._epilogue.bias, result)
        if finish is not None:
            finish(result, others[:-1])
        if result is not out:
            np.copyto(out, result)
