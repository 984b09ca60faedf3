"""Creates the kernels of nodes whose operators this provider can bind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import (
    NOT_PACKED,
    HostArray,
    KernelInfo,
    NotPacked,
    OrtMemoryInfo,
    PrePackedWeights,
    Slot,
    Tensor,
    TensorElementType,
)
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.memory.allocator import ALIGNMENT_BYTES, CpuAllocator
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from .bindable import (
    BINDERS,
    EARLY_KERNEL_MAKERS,
    KERNEL_MAKERS,
    STRING_CALLS,
    BindableKernel,
    Binding,
)
from .eager import over_direct_call, with_direct_call
from .layouts.any_layout import AnyLayoutKernel, FixedSlot
from .writer import MakeWriter

__all__ = ["bound_kernel", "has_float16_weight", "stores_packed_weights"]

_MOVED = frozenset(TensorElementType) - {TensorElementType.UNDEFINED, TensorElementType.STRING}
"""Element types that a kernel can move."""
_COMPUTED = frozenset(element_type for element_type in _MOVED if NumpyNamespace().compute_type(element_type) is element_type)
"""Element types that NumPy computes in, without a wider type."""
_STRINGS = frozenset({TensorElementType.STRING})

STORING_KEYS = ("session.prepack_cache_dir", "session.save_external_prepacked_constant_initializers")
"""Config entries of sessions that keep packed weights in files."""

BLAS_OPERATORS = frozenset(
    {
        *("Conv", "ConvTranspose", "Einsum", "FusedConv", "FusedGemm", "FusedMatMul", "FusedMatMulActivation", "GRU", "Gemm"),
        *("LSTM", "MatMul", "MultiHeadAttention", "RNN", "TransposeMatMul"),
    }
)
"""Operators that may call NumPy's BLAS."""

CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "FusedConv", "QLinearConv"})
"""Operators whose pads may be negative, which crops the input: only the shared set does that."""

WEIGHT = 1
"""Index of the weight: the filter of a convolution, the right operand of a matrix product."""


def bound_kernel(create: Callable[[KernelInfo], Any], info: KernelInfo) -> Any:
    """The kernel of a node, with ``bind`` if its operator has a binder that takes its element types.

    Args:
        create: creates the shared set's kernel.
        info: the node.
    """
    made = _bound_kernel(create, info)
    if info.op_type in BLAS_OPERATORS and info.execution_provider is not None:
        info.execution_provider.uses_blas = True
    if isinstance(made, BindableKernel):
        made.describe(info)
    return made


def _bound_kernel(create: Callable[[KernelInfo], Any], info: KernelInfo) -> Any:
    key = (info.domain, info.op_type)
    if info.op_type in CONVOLUTIONS and min(info.attribute("pads", None) or (0,)) < 0:
        return create(info)
    binding = BINDERS[key]
    make_usual = functools.partial(_usual_kernel, create, info, binding)
    if _takes_types(info, binding):
        first = EARLY_KERNEL_MAKERS.get(key)
        made = None if first is None else first(info, make_usual)
        return make_usual() if made is None else made
    if binding.float16_weight and has_float16_weight(info):
        return make_usual()
    kernel, make_call = create(info), STRING_CALLS.get(key)
    return kernel if make_call is None else over_direct_call(kernel, make_call(info, kernel.compute))


def _usual_kernel(create: Callable[[KernelInfo], Any], info: KernelInfo, binding: Binding) -> Any:
    """The shared set's kernel, bound."""
    kernel = create(info)
    make_writer = binding.binder(info, kernel.compute)
    if make_writer is None:
        return with_direct_call(kernel, info)
    maker = KERNEL_MAKERS.get((info.domain, info.op_type))
    made = None if maker is None else maker(info, kernel, make_writer)
    if made is not None:
        return made
    if binding.any_layout:
        return AnyLayoutKernel(kernel, make_writer, is_elementwise=binding.elementwise)
    if binding.has_weight and stores_packed_weights(info):
        return _AlignedWeightKernel(kernel, make_writer, info)
    return BindableKernel(kernel, make_writer)


def stores_packed_weights(info: KernelInfo) -> bool:
    """Whether the node's session keeps packed weights in files."""
    return any(info.session_config.get(key, "0") not in {"", "0"} for key in STORING_KEYS)


def has_float16_weight(info: KernelInfo) -> bool:
    """Whether a float32 node has a float16 constant as input 1, and the processor converts float16 (F16C, with AVX2)."""
    tensor = info.constants.get(WEIGHT)
    if tensor is None or tensor.element_type is not TensorElementType.FLOAT16 or instruction_set() < InstructionSet.AVX2:
        return False
    others = {argument.element_type for index, argument in enumerate(info.inputs) if argument is not None and index != WEIGHT}
    return others | {info.output_element_type(0)} == {TensorElementType.FLOAT}


def _takes_types(info: KernelInfo, binding: Binding) -> bool:
    allowed = _MOVED if binding.any_type else _COMPUTED
    return (allowed | _STRINGS if binding.reads_strings else allowed).issuperset(info.element_types())


class _AlignedWeightKernel(BindableKernel):
    """A kernel whose weight is packed as one copy at a multiple of 64 bytes, if the file has it at another address.

    It is for sessions that keep packed weights in files: there the copy is made once and mapped by every process. Without such
    a file the host makes the same copy in the first run, so packing at session creation would only use memory earlier.

    Args:
        kernel: the shared set's, which computes without a program.
        make_writer: makes the writer of a program.
        info: the node.
    """

    def __init__(self, kernel: Any, make_writer: MakeWriter, info: KernelInfo) -> None:
        super().__init__(kernel, make_writer)
        tensor = info.constants.get(WEIGHT)
        self._shape = () if tensor is None else tuple(tensor.shape)
        self._dtype = np.dtype(np.uint8) if tensor is None else tensor.element_type.numpy_dtype
        self._weight: HostArray | None = None
        self._allocator = CpuAllocator(OrtMemoryInfo())

    def packing_identity(self, input_index: int) -> str | None:
        """Identity of the packed layout; None for inputs that are not packed."""
        return f"aligned-{ALIGNMENT_BYTES}" if input_index == WEIGHT else None

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """Copy a weight whose address is not a multiple of its element size."""
        if input_index != WEIGHT:
            return NOT_PACKED
        data = tensor.packed()
        if data.ctypes.data % self._dtype.alignment == 0:
            return NOT_PACKED
        buffer = self._allocator.allocate((data.size,), TensorElementType.UINT8)
        np.copyto(buffer, data)
        buffer.flags.writeable = False
        return PrePackedWeights((buffer,))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Take the weight from the packed buffer."""
        self._weight = weights.buffers[0].view(self._dtype).reshape(self._shape)

    @property
    def compute(self) -> Callable[..., Any]:
        """The shared set's function, on the packed weight if there is one."""
        compute: Callable[..., Any] = self._compute
        weight = self._weight
        if weight is None:
            return compute
        return lambda first, _weight, *others: compute(first, weight, *others)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """As ``BindableKernel.bind``, with the packed weight in place of the input."""
        if self._weight is None:
            return super().bind(inputs, outputs)
        weight = FixedSlot(self._weight)
        return super().bind([*inputs[:WEIGHT], weight, *inputs[WEIGHT + 1 :]], outputs)
