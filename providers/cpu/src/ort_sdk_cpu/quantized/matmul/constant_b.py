"""GEMMs of 8-bit matrices with a constant B: DynamicQuantizeMatMul, MatMulIntegerToFloat, MatMulInteger."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, OpKernel, Slot
from ort_sdk_cpu.conv.geometry import ConvGeometry
from ort_sdk_cpu.elementwise.arguments.cast import MODULE as CAST
from ort_sdk_cpu.elementwise.arguments.cast import Cast
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot
from ort_sdk_cpu.kernel.layouts.channels_last import ArraysCall
from ort_sdk_cpu.memory.workspace import workspace_of
from ort_sdk_cpu.quantized.conv.centered_weight import CenteredWeight
from ort_sdk_cpu.quantized.conv.dequantized import DequantizationEpilogue, DequantizedConvolution
from ort_sdk_cpu.quantized.dynamic import RangeQuantization

from .select import K_BLOCK, QuantizedGemmAlgorithm, are_sums_exact, select_constant_b

__all__ = ["IntegerMatMulKernel", "kernel_for"]

KEPT_CALLS = 16
"""Calls for different numbers of rows that a thread keeps per kernel."""
OWN_BYTES = 1 << 18
"""Quantized numbers up to which a bound call has memory of its own, and needs no Python."""
_UINT8, _INT8, _INT32, _FLOAT = (np.dtype(kind) for kind in (np.uint8, np.int8, np.int32, np.float32))
_BYTES = (_UINT8, _INT8)


def kernel_for(info: KernelInfo, kernel: Any) -> IntegerMatMulKernel | None:
    """The kernel; None if there is none for the node: B and its parameters must be constant.

    Args:
        info: a DynamicQuantizeMatMul, MatMulIntegerToFloat or MatMulInteger node.
        kernel: computes what this one does not.
    """
    if select_constant_b(info) is QuantizedGemmAlgorithm.NUMPY:
        return None
    kinds = {"DynamicQuantizeMatMul": _DynamicKernel, "MatMulIntegerToFloat": _QuantizedKernel, "MatMulInteger": _IntegerKernel}
    return kinds[info.op_type](info, kernel)


class _Operand(NamedTuple):
    """A as integers, with zero point and scale."""

    codes: HostArray
    """(rows, k), contiguous."""
    zero_point: HostArray
    """Of the codes' type, one element."""
    scale: HostArray
    """float32, one element."""


class _Call(NamedTuple):
    """What a thread keeps for a number of rows."""

    gemm: ArraysCall
    quantization: RangeQuantization | None


class IntegerMatMulKernel(OpKernel):
    """A quantized matrix times a constant one, as float32.

    Args:
        info: the node.
        kernel: computes what this one does not.
    """

    b_scale, b_zero_point, bias = 2, 3, 4
    """Inputs."""
    quantizes = False
    """Whether A is float32."""
    output_type = _FLOAT

    def __init__(self, info: KernelInfo, kernel: Any) -> None:
        self._compute, self._info = kernel.compute, info
        self._input_rule = getattr(kernel, "input_rule", None)
        self.deterministic, self.shape_inputs = kernel.deterministic, kernel.shape_inputs
        self._k, self._columns = info.constants[1].shape
        self._workspace = workspace_of(info)
        self._adds_bias = info.has_input(self.bias) and info.constant_input(self.bias) is None
        self._calls = threading.local()

    @property
    def algorithm(self) -> str | None:
        """How the node is computed."""
        return QuantizedGemmAlgorithm.PACKED_B

    @functools.cached_property
    def _convolution(self) -> DequantizedConvolution:
        return self.gemm_with(slice(0, self._k))

    def gemm_with(self, rows: slice) -> DequantizedConvolution:
        """The GEMM with some rows of B, as a convolution whose image is one column of the rows of A."""
        shape = (self._columns, rows.stop - rows.start, 1, 1)
        # No method of this object, which is to hold the convolution.
        weight = functools.partial(_weight, self._info, self.b_zero_point, rows)
        return DequantizedConvolution(ConvGeometry.of(self._info), shape, weight, self.epilogue(), self._workspace)

    def epilogue(self) -> DequantizationEpilogue:
        """What follows the sums of the convolution."""
        info = self._info
        scales = info.constant_input(self.b_scale)
        assert scales is not None  # noqa: S101 - it was seen to be constant
        return DequantizationEpilogue(scales.reshape(-1), info.constant_input(self.bias) if info.has_input(self.bias) else None)

    def can_compute(self, inputs: Sequence[Any]) -> bool:
        """Whether the inputs are what is computed here."""
        a, bias = inputs[0], inputs[self.bias] if len(inputs) > self.bias else None
        fits = a.ndim > 0 and a.size > 0 and a.shape[-1] == self._k
        given = self._info.constant_input(self.bias) if bias is None and self._info.has_input(self.bias) else bias
        return bool(fits and (given is None or (given.dtype == _FLOAT and given.shape == (self._columns,))))

    def operand(self, inputs: Sequence[Any], codes: HostArray | None) -> _Operand:
        """A as integers; ``codes`` is memory for those that have to be made of it first."""
        raise NotImplementedError

    def compute(self, *inputs: Any) -> Any:
        """A new array."""
        if self._input_rule is not None:
            self._input_rule.check(inputs)
        if not self.can_compute(inputs):
            return self._compute(*inputs)
        out = np.empty((*inputs[0].shape[:-1], self._columns), self.output_type)
        self._put(inputs, out)
        return out

    def _put(self, inputs: Sequence[Any], out: HostArray) -> None:
        """Write what the node's output is."""
        self._write(inputs, out)

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the output's array."""
        output = outputs[0]
        native = self._fixed(inputs, output) if all(slot.is_fixed for slot in (*inputs, output)) else None
        if native is not None:
            return native

        def call() -> None:
            arrays = [slot.array for slot in inputs]
            if self.can_compute(arrays):
                self._put(arrays, output.array)
            else:
                np.copyto(output.array, self._compute(*arrays))

        return call

    def _fixed(self, inputs: Sequence[Slot], output: Slot) -> Callable[[], Any] | None:
        """The call on arrays that stay, which needs no Python; None for much work, and for what is not computed here."""
        arrays = [slot.array for slot in inputs]
        a = arrays[0]
        if self._adds_bias or a.size > OWN_BYTES or not a.flags.c_contiguous or not self.can_compute(arrays):
            return None
        operand = self.operand(arrays, np.empty(a.size, _UINT8))
        made = self._made(operand, output.array)
        gemm = made.gemm.bind_arrays(*_images(operand, output.array))
        if made.quantization is None:
            return gemm
        return in_sequence([made.quantization.bind_arrays(a, operand.codes, operand.scale, operand.zero_point), gemm])

    def _write(self, inputs: Sequence[Any], out: HostArray) -> None:
        """Compute into an output that is contiguous."""
        a = np.ascontiguousarray(inputs[0])
        codes = self._workspace.array("quantized", (a.size,), _UINT8) if self.quantizes else None
        operand = self.operand([a, *inputs[1:]], codes)
        made = self._call_for(operand, out)
        if made.quantization is not None:
            made.quantization.run(a, operand.codes, operand.scale, operand.zero_point)
        made.gemm.run(*_images(operand, out))
        if self._adds_bias:
            np.add(out, inputs[self.bias], out)

    def _call_for(self, operand: _Operand, out: HostArray) -> _Call:
        calls: dict[Any, _Call] = self._calls.__dict__
        key = (len(operand.codes), operand.codes.dtype)
        if key not in calls:
            while len(calls) >= KEPT_CALLS:
                del calls[next(iter(calls))]
            calls[key] = self._made(operand, out)
        return calls[key]

    def _made(self, operand: _Operand, out: HostArray) -> _Call:
        """The calls for arrays like these."""
        quantization = RangeQuantization(operand.codes.size) if self.quantizes else None
        return _Call(self._convolution.call(*_images(operand, out)), quantization)


def _weight(info: KernelInfo, zero_point: int, rows: slice) -> CenteredWeight:
    """Some rows of B as a convolution's weight, with the input of that number for zero points."""
    matrix, zeros = info.constant_input(1), info.constant_input(zero_point)
    assert matrix is not None  # noqa: S101 - it was seen to be constant
    shifts = np.zeros(1, matrix.dtype) if zeros is None else zeros.reshape(-1)
    return CenteredWeight.of(matrix[rows].T[:, :, None, None], shifts)


def _images(operand: _Operand, out: HostArray) -> tuple[HostArray, HostArray, HostArray, HostArray]:
    """As a convolution takes them."""
    return _image(operand.codes), operand.zero_point, operand.scale, _image(out)


def _image(matrix: HostArray) -> HostArray:
    """(..., columns) as (1, columns, rows, 1)."""
    return matrix.reshape(-1, matrix.shape[-1]).T[None, :, :, None]


class _DynamicKernel(IntegerMatMulKernel):
    """A is quantized by its own range."""

    quantizes = True

    def can_compute(self, inputs: Sequence[Any]) -> bool:
        return super().can_compute(inputs) and inputs[0].dtype == _FLOAT

    def operand(self, inputs: Sequence[Any], codes: HostArray | None) -> _Operand:
        assert codes is not None  # noqa: S101 - it is given where A is quantized
        return _Operand(codes.reshape(-1, self._k), np.empty(1, _UINT8), np.empty(1, _FLOAT))


class _QuantizedKernel(IntegerMatMulKernel):
    """A is quantized already, with one scale."""

    b_scale, b_zero_point, bias = 3, 5, 6

    def can_compute(self, inputs: Sequence[Any]) -> bool:
        a, scale, zero_point = inputs[0], inputs[2], inputs[4] if len(inputs) > 4 else None
        is_single = scale.size == 1 and scale.dtype == _FLOAT and (zero_point is None or zero_point.size == 1)
        return super().can_compute(inputs) and a.dtype in _BYTES and bool(is_single)

    def operand(self, inputs: Sequence[Any], codes: HostArray | None) -> _Operand:
        a, zero_point = inputs[0], inputs[4] if len(inputs) > 4 else None
        rows = math.prod(a.shape[:-1])
        return _Operand(a.reshape(rows, -1), np.zeros(1, a.dtype) if zero_point is None else zero_point, inputs[2])


class _IntegerKernel(IntegerMatMulKernel):
    """In int32: at once where float32 holds all sums, else by blocks of K."""

    b_zero_point, bias = 3, 4
    output_type = _INT32

    def epilogue(self) -> DequantizationEpilogue:
        return DequantizationEpilogue(np.ones(1, _FLOAT))

    @functools.cached_property
    def _is_exact(self) -> bool:
        matrix, zeros = self._info.constant_input(1), self._info.constant_input(3)
        assert matrix is not None  # noqa: S101 - it was seen to be constant
        return are_sums_exact(matrix, np.zeros(1, matrix.dtype) if zeros is None else zeros)

    @property
    def algorithm(self) -> str | None:
        """None before B was read."""
        if "_is_exact" not in vars(self):
            return None
        return QuantizedGemmAlgorithm.PACKED_B if self._is_exact else QuantizedGemmAlgorithm.PACKED_B_SPLIT_K

    def can_compute(self, inputs: Sequence[Any]) -> bool:
        zero_point = inputs[2] if len(inputs) > 2 else None
        fits = super().can_compute(inputs) and inputs[0].dtype in _BYTES
        return fits and (zero_point is None or zero_point.size == 1)

    def operand(self, inputs: Sequence[Any], codes: HostArray | None) -> _Operand:
        a, zero_point = inputs[0], inputs[2] if len(inputs) > 2 else None
        given = np.zeros(1, a.dtype) if zero_point is None else zero_point
        return _Operand(a.reshape(-1, self._k), given, np.ones(1, _FLOAT))

    @functools.cached_property
    def _blocks(self) -> Sequence[tuple[slice, DequantizedConvolution]]:
        """Rows of B, and the GEMM with them."""
        starts = range(0, self._k, K_BLOCK)
        found = [slice(start, min(start + K_BLOCK, self._k)) for start in starts]
        return [(rows, self.gemm_with(rows)) for rows in found]

    def _put(self, inputs: Sequence[Any], out: HostArray) -> None:
        sums = self._workspace.array("sums", out.shape, _FLOAT)
        if self._is_exact:
            self._write(inputs, sums)
            np.copyto(out, sums, casting="unsafe")
            return
        whole = self.operand(inputs, None)
        out[...] = 0
        for rows, gemm in self._blocks:
            images = _images(whole._replace(codes=np.ascontiguousarray(whole.codes[:, rows])), sums)
            gemm.call(*images).run(*images)
            np.add(out, sums, out=out, casting="unsafe")

    def _fixed(self, inputs: Sequence[Slot], output: Slot) -> Callable[[], Any] | None:
        """The call on arrays that stay: sums go to memory of its own."""
        out = output.array
        if out.nbytes > OWN_BYTES or not out.flags.c_contiguous or not self._is_exact:
            return None
        sums = np.empty(out.shape, _FLOAT)
        gemm = super()._fixed(inputs, FixedSlot(sums))
        if gemm is None:
            return None
        from ort_sdk_cpu.jit.task import TaskCall

        convert = TaskCall(CAST, "f32_to_i32", Cast(sums, out, out.size))
        return in_sequence([gemm, convert.bound_call(sums, out)])
