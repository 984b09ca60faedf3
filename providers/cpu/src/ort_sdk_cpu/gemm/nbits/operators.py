"""MatMulNBits: GEMM with weights of 2, 4 or 8 bits, read in place."""

from __future__ import annotations

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
    Tensor,
    TensorElementType,
)
from ort_sdk.opset.contrib.matmul_nbits import BlockWeight
from ort_sdk_cpu.kernel.bindable import BindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer
from ort_sdk_cpu.memory.workspace import workspace_of
from ort_sdk_cpu.platform import libraries

from .launch import NBitsGemm, NBitsGemv, RunGemm
from .operands import BIAS, GROUP_INDEX, SCALES, WEIGHT, ZERO_POINTS, NBitsOperands, kn_operands, kn_sources, nk_operands
from .packing import computed_operands, pack_operand
from .scales import has_float16_scales, pack_float16_scales

__all__ = ["MatMulNBitsKernel"]

MICROSOFT = "com.microsoft"
INT8_ACTIVATIONS = 4
"""``accuracy_level`` that allows activations to be quantised."""
MOST_CALLS = 64
"""Numbers of rows whose calls are kept."""
FLOAT16_SCALES = "float32 scales of MatMulNBits as float16"
"""How those are packed that are read with quantised activations."""
_PACKED = (WEIGHT, SCALES, ZERO_POINTS)
_ZERO_POINT_TYPES = (TensorElementType.UINT8, TensorElementType.FLOAT)


@bindable("MatMulNBits", domain=MICROSOFT)
def matmul_nbits(_info: KernelInfo, compute: Any) -> MakeWriter:
    """The shared set's result, copied into the output."""

    def write(*arrays: Any) -> None:
        np.copyto(arrays[-1], compute(*arrays[:-1]))

    return lambda _inputs, _outputs: write


@kernel_maker("MatMulNBits", domain=MICROSOFT)
def compiled_matmul_nbits(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel | None:
    """The GEMM by compiled tasks, where there is a compiler and they know the node's types."""
    if not libraries.compiled_kernels().is_usable or info.has_input(GROUP_INDEX):
        return None
    floats = (info.input_element_type(index) for index in (0, SCALES, BIAS) if info.has_input(index))
    if any(element_type is not TensorElementType.FLOAT for element_type in floats):
        return None
    if info.input_element_type(WEIGHT) is not TensorElementType.UINT8:
        return None
    if info.has_input(ZERO_POINTS) and info.input_element_type(ZERO_POINTS) not in _ZERO_POINT_TYPES:
        return None
    return MatMulNBitsKernel(info, kernel, make_writer)


class MatMulNBitsKernel(BindableKernel):
    """A MatMulNBits node.

    Constant operands are kept as views of their source: the node's own, or those of the DequantizeLinear node it comes from,
    which then need not be brought into the node's layout. Where packed weights are kept in files, they are, once, and scales
    are as float16 where activations are rounded anyway.

    Args:
        info: the node; activations are float32, and there is no g_idx.
        kernel: the shared set's, for what is known of it.
        make_writer: the shared set's.
    """

    def __init__(self, info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> None:
        super().__init__(kernel, make_writer)
        self._info = info
        self._weight = BlockWeight.of(info)
        is_exact = info.attribute("accuracy_level", 0) != INT8_ACTIVATIONS
        self._gemm = NBitsGemm(self._weight, workspace_of(info), is_exact=is_exact)
        self._kn = kn_sources(self._weight, info)
        self._computed = computed_operands(info)
        self._views: dict[int, HostArray] = {}
        self._takes_float16_scales = not is_exact and self._kn is None and SCALES not in self._computed
        self._float16_scales: HostArray | None = None
        self._calls: dict[int, RunGemm] = {}

    def make_writer(self, inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        """The node's GEMM."""
        return _NBitsWriter(self)

    def packing_identity(self, input_index: int) -> str | None:
        """What is computed for files is what the operator takes."""
        if input_index in self._computed:
            return TENSOR_BYTES
        return FLOAT16_SCALES if input_index == SCALES and self._takes_float16_scales else None

    def prepack(self, tensor: Tensor, input_index: int, allocator: Any) -> PrePackedWeights | NotPacked:
        """A constant operand computed into a file; else a view of its bytes, none where they are read from DequantizeLinear's.

        Of scales that are read as float16 where a file holds them so these, or nothing; the view is kept until they are used,
        so that nothing is loaded twice.
        """
        if input_index not in _PACKED:
            return NOT_PACKED
        is_packed, goes_to_file = input_index != WEIGHT and WEIGHT in self._views, getattr(allocator, "goes_to_file", False)
        if input_index in self._computed and (is_packed or goes_to_file):
            return pack_operand(self._weight, tensor, allocator)
        if self._kn is not None:
            return PrePackedWeights(())
        if input_index == SCALES and self._takes_float16_scales:
            if not goes_to_file:
                return PrePackedWeights(())
            scales = self._views[SCALES] = tensor.packed().view(np.float32)
            return PrePackedWeights((pack_float16_scales(scales, allocator),))
        return PrePackedWeights((tensor.packed(),))

    def use_prepacked(self, weights: PrePackedWeights, input_index: int) -> None:
        """Read an operand from its view."""
        if weights.buffers and input_index == WEIGHT:
            self._kn = None
        if self._kn is not None:
            return
        if input_index == SCALES and self._takes_float16_scales:
            self._float16_scales = weights.buffers[0] if weights.buffers and has_float16_scales(weights.buffers[0]) else None
            weights = PrePackedWeights(())
        view = weights.buffers[0] if weights.buffers else self._info.constants[input_index].packed()
        element_type = self._info.input_element_type(input_index)
        self._views[input_index] = view if element_type is None else view.view(element_type.numpy_dtype)

    @property
    def algorithm(self) -> str | None:
        """Of the last run, or of the last program that was bound."""
        found = self._gemm.algorithm
        return None if found is None else found.value

    @property
    def compute(self) -> Callable[..., Any]:
        """A @ dequantised(B)^T + bias, in a new array."""
        return self._compute_new

    def bind_arrays(self, a: HostArray, *arrays: Any) -> Callable[[], Any] | None:
        """The GEMM on arrays that stay; None where an operand may change, and for arrays that are not contiguous."""
        *rest, out = arrays
        inputs = [a, *rest, *[None] * (BIAS - len(rest))]
        bias = inputs[BIAS]
        rows = self._checked_rows(a, bias)
        is_plain = all(array is None or array.flags.c_contiguous for array in (a, bias, out))
        if not is_plain or not out.size or not self._keeps_operands(inputs):
            return None
        return self._gemm.bind_arrays(self._operands_of(inputs), rows, a, bias, out)

    def gemv(self) -> NBitsGemv | None:
        """The GEMV for few rows, with operands that stay; None where they may change, or the weight is [K, N]."""
        is_kept = all(index in self._views for index in _PACKED if self._info.has_input(index))
        if not is_kept or self._kn is not None or not self._weight.size_n:
            return None
        return self._gemm.gemv(self._operands((np.empty((0, self._weight.size_k), np.float32), None, None, None)))

    def _compute_new(self, a: HostArray, *rest: Any) -> HostArray:
        out = np.empty((*a.shape[:-1], self._weight.size_n), dtype=np.float32)
        self.write(a, *rest, out)
        return out

    def write(self, a: HostArray, *arrays: Any) -> None:
        """Write the result into the last array."""
        *rest, out = arrays
        inputs = [a, *rest, *[None] * (BIAS - len(rest))]
        rows = self._checked_rows(a, inputs[BIAS])
        run = self._calls.get(rows)
        if run is None:
            run = self._call_for(inputs, rows)
        if run is None:
            return
        a = np.ascontiguousarray(a)
        bias = None if inputs[BIAS] is None else np.ascontiguousarray(inputs[BIAS])
        result = out if out.flags.c_contiguous else np.empty(out.shape, out.dtype)
        run(a, bias, result)
        if result is not out:
            np.copyto(out, result)

    def _call_for(self, inputs: Sequence[Any], rows: int) -> RunGemm | None:
        """The call for a number of rows, kept if no operand may change; None if there is nothing to compute."""
        operands = self._operands_of(inputs)
        if not rows or not self._weight.size_n:
            return None
        run = self._gemm.bind(operands, rows)
        if self._keeps_operands(inputs):
            if len(self._calls) >= MOST_CALLS:
                self._calls = {}
            self._calls[rows] = run
        return run

    def _keeps_operands(self, inputs: Sequence[Any]) -> bool:
        return self._kn is not None or all(index in self._views or inputs[index] is None for index in _PACKED)

    def _operands_of(self, inputs: Sequence[Any]) -> NBitsOperands:
        return self._operands(inputs) if self._kn is None else kn_operands(self._weight, self._kn)

    def _checked_rows(self, a: HostArray, bias: HostArray | None) -> int:
        size_k, size_n = self._weight.size_k, self._weight.size_n
        if not a.ndim or a.shape[-1] != size_k or (bias is not None and bias.shape != (size_n,)):
            shape = "none" if bias is None else tuple(bias.shape)
            raise InvalidArgument(
                f"{self._info.describe()}: A has shape {tuple(a.shape)} and bias {shape}; with K = {size_k} and N = {size_n}"
                f" they must be (..., {size_k}) and ({size_n},)"
            )
        return math.prod(a.shape[:-1])

    def _operands(self, inputs: Sequence[Any]) -> NBitsOperands:
        """Those of a call, views in place of what is packed."""
        codes, scales, zero_points = (self._views.get(index, inputs[index]) for index in _PACKED)
        self._weight.check(inputs[0], codes, scales)
        if zero_points is not None:
            self._weight.check_zero_points(zero_points)
            zero_points = np.ascontiguousarray(zero_points)
        return nk_operands(
            self._weight, np.ascontiguousarray(codes), np.ascontiguousarray(scales), zero_points, self._float16_scales
        )


class _NBitsWriter:
    """Writes a node's result.

    Args:
        kernel: the node's.
    """

    def __init__(self, kernel: MatMulNBitsKernel) -> None:
        self._kernel = kernel

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        self._kernel.write(*arrays)

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if they are to be looked at each time."""
        return self._kernel.bind_arrays(*arrays)
