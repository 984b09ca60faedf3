"""Products of 8-bit matrices in 32 bits by oneDNN, and what they are as float32: DynamicQuantizeMatMul, MatMulIntegerToFloat."""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, OpKernel, RuntimeException, Slot
from ort_sdk_cpu import libraries
from ort_sdk_cpu.addresses import address_of
from ort_sdk_cpu.instruction_set import has_vnni
from ort_sdk_cpu.machine_code import TaskCall, task_function
from ort_sdk_cpu.native_call import in_turn
from ort_sdk_cpu.onednn.call import PrimitiveCall
from ort_sdk_cpu.onednn.constants import Argument
from ort_sdk_cpu.onednn.execution import reordered
from ort_sdk_cpu.onednn.library import is_available
from ort_sdk_cpu.onednn.memory_descriptor import MemoryDescriptor, any_layout, contiguous
from ort_sdk_cpu.onednn.primitive import matmul
from ort_sdk_cpu.threads import team_of

from .scratch import scratch_of
from .task_writer import threads_for

__all__ = ["over_onednn"]

MODULE = "dynamic_quantization"
KEPT_CALLS = 16
"""Calls for different numbers of rows that a thread keeps per kernel."""
TEAM_PRODUCTS = 1 << 21
"""Multiplications that take about as long on one thread as waking another."""
SMALL_BYTES = 1 << 16
"""Working memory up to which a bound call has its own, and needs no Python."""
_UINT8, _INT8, _INT32, _FLOAT = (np.dtype(kind) for kind in (np.uint8, np.int8, np.int32, np.float32))


def over_onednn(info: KernelInfo, kernel: Any) -> IntegerProductKernel | None:
    """The kernel over oneDNN; None if it computes nothing of the node: B and its parameters must be constant.

    Args:
        info: a DynamicQuantizeMatMul or MatMulIntegerToFloat node.
        kernel: computes what oneDNN does not.
    """
    tensor = info.constants.get(1)
    if not is_available() or not has_vnni() or not libraries.numba().is_usable or tensor is None or len(tensor.shape) != 2:
        return None
    kind = _DynamicKernel if info.op_type == "DynamicQuantizeMatMul" else _QuantizedKernel
    parameters = _Parameters.of(info, kind.b_scale, kind.b_zero_point, tuple(tensor.shape))
    return None if parameters is None else kind(info, kernel, parameters)


class _Parameters:
    """B's scales and zero points, one per column; the latter as if B were int8."""

    def __init__(self, scales: HostArray, zero_points: HostArray, shape: tuple[int, int]) -> None:
        self.shape = shape
        self.scales = np.ascontiguousarray(np.broadcast_to(scales, shape[1:]), _FLOAT)
        self.zero_points = np.ascontiguousarray(np.broadcast_to(zero_points, shape[1:]), _INT32)

    @classmethod
    def of(cls, info: KernelInfo, scale: int, zero_point: int, shape: tuple[int, ...]) -> _Parameters | None:
        """From a node's constant inputs; None if they are others."""
        scales, zeros, kind = info.constant_input(scale), info.constant_input(zero_point), info.input_element_type(1)
        if scales is None or scales.dtype != _FLOAT or (zeros is None and info.has_input(zero_point)) or kind is None:
            return None
        offset = 128 if kind.numpy_dtype == _UINT8 else 0
        if kind.numpy_dtype not in {_UINT8, _INT8} or not all(shape) or scales.size not in {1, shape[1]}:
            return None
        if zeros is not None and zeros.size not in {1, shape[1]}:
            return None
        shift = np.zeros(1, np.int32) if zeros is None else zeros.reshape(-1).astype(np.int32)
        return cls(scales.reshape(-1), shift - offset, (shape[0], shape[1]))


class _Matrix:
    """B in the layouts that products want.

    Args:
        info: the node.
    """

    def __init__(self, info: KernelInfo) -> None:
        self._info = info
        self._lock = threading.Lock()
        self._packed: dict[MemoryDescriptor, HostArray] = {}

    @functools.cached_property
    def column_sums(self) -> HostArray:
        """Int32, (columns,)."""
        sums: HostArray = self._signed().sum(axis=0, dtype=np.int32)
        return sums

    def in_layout(self, layout: MemoryDescriptor) -> HostArray:
        """The matrix as int8."""
        with self._lock:
            found = self._packed.get(layout)
            if found is None:
                plain = self._signed()
                made = reordered(plain, contiguous(plain.shape, _INT8), layout)
                if made is None:
                    raise RuntimeException(f"oneDNN has no fast copy of a matrix of shape {plain.shape} to {layout.key}")
                found = self._packed[layout] = made
        return found

    def _signed(self) -> HostArray:
        matrix = self._info.constant_input(1)
        assert matrix is not None  # noqa: S101 - it was seen to be constant
        signed = (matrix ^ 128).view(_INT8) if matrix.dtype == _UINT8 else matrix
        return np.ascontiguousarray(signed)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A, and what remains to be done before it is there."""

    codes: HostArray
    """uint8, (rows, inner), contiguous."""
    scale: HostArray
    """float32, one element."""
    zero_point: HostArray | None
    """uint8, one element; None for 0."""
    source: HostArray | None = None
    """What codes, scale and zero point have to be made of first."""

    def quantizing(self) -> tuple[int, ...]:
        """Arguments of the task that makes them."""
        arrays = (self.source, self.codes, self.scale, self.zero_point)
        return (*(0 if array is None else address_of(array) for array in arrays), self.codes.size)


Memory = Callable[[str, tuple[int, ...], np.dtype[Any]], HostArray]
"""Gives arrays with any contents, by a name, shape and type."""


def _own_memory(_name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
    return np.empty(shape, dtype)


class _Calls(threading.local):
    """What a thread keeps."""

    def __init__(self) -> None:
        self.by_rows: dict[int, tuple[PrimitiveCall, TaskCall]] = {}


class IntegerProductKernel(OpKernel):
    """A quantized matrix times a constant quantized one, as float32.

    Args:
        info: the node.
        kernel: computes what oneDNN does not.
        parameters: of B.
    """

    b_scale, b_zero_point, bias = 2, 3, 4
    """Inputs."""

    def __init__(self, info: KernelInfo, kernel: Any, parameters: _Parameters) -> None:
        self._compute = kernel.compute
        self.deterministic, self.shape_inputs = kernel.deterministic, kernel.shape_inputs
        self._parameters, self._matrix = parameters, _Matrix(info)
        self._scratch = scratch_of(info)
        self._calls = _Calls()

    def can_compute(self, inputs: Sequence[Any]) -> bool:
        """Whether the inputs are what is computed here."""
        a, bias = inputs[0], self._bias(inputs)
        inner, columns = self._parameters.shape
        fits = a.ndim > 0 and a.size >= inner >= 16 and a.shape[-1] == inner
        return bool(fits and (bias is None or (bias.dtype == _FLOAT and bias.shape == (columns,))))

    def operand(self, inputs: Sequence[Any], memory: Memory) -> _Operand:
        """A, in working memory where it is not there yet."""
        raise NotImplementedError

    def compute(self, *inputs: Any) -> Any:
        """A new array."""
        if not self.can_compute(inputs):
            return self._compute(*inputs)
        out = np.empty((*inputs[0].shape[:-1], self._parameters.shape[1]), _FLOAT)
        self._write(inputs, out)
        return out

    def bind(self, inputs: Sequence[Slot], outputs: Sequence[Slot]) -> Callable[[], Any]:
        """A call that reads the inputs' slots and writes into the output's array."""
        output = outputs[0]
        native = self._fixed(inputs, output) if all(slot.is_fixed for slot in (*inputs, output)) else None
        if native is not None:
            return native

        def call() -> None:
            arrays = [slot.array for slot in inputs]
            if self.can_compute(arrays):
                self._write(arrays, output.array)
            else:
                np.copyto(output.array, self._compute(*arrays))

        return call

    def _bias(self, inputs: Sequence[Any]) -> HostArray | None:
        return inputs[self.bias] if len(inputs) > self.bias else None

    def _fixed(self, inputs: Sequence[Slot], output: Slot) -> Callable[[], Any] | None:
        """The call on arrays that stay, which needs no Python; None for much work, and for what is not computed here."""
        arrays, (inner, columns) = [slot.array for slot in inputs], self._parameters.shape
        rows = arrays[0].size // inner
        is_small = rows * (inner + 4 * columns) <= SMALL_BYTES
        if not is_small or not self.can_compute(arrays) or not all(array is None or array.flags.c_contiguous for array in arrays):
            return None
        operand, (product, finish) = self.operand(arrays, _own_memory), self._made(rows)
        sums, out, bias = np.empty((rows, columns), _INT32), output.array, self._bias(arrays)
        _aim(finish, operand, sums, bias, out)
        calls = [product.fixed(operand.codes, sums), finish.kept(operand, sums, bias, out, self)]
        if operand.source is not None:
            calls.insert(0, TaskCall(MODULE, "quantize_by_range", operand.quantizing()).kept(operand))
        return in_turn(calls)

    def _write(self, inputs: Sequence[Any], out: HostArray) -> None:
        """Compute into an output that is contiguous."""
        operand = self.operand(inputs, self._scratch.array)
        if operand.source is not None:
            task_function(MODULE, "quantize_by_range", "qqqqq")(1, *operand.quantizing())
        product, finish = self._calls_for(len(operand.codes))
        sums = self._scratch.array("integer sums", (len(operand.codes), self._parameters.shape[1]), _INT32)
        product.run(operand.codes, sums)
        bias = self._bias(inputs)
        _aim(finish, operand, sums, None if bias is None else np.ascontiguousarray(bias), out)
        finish.run()

    def _calls_for(self, rows: int) -> tuple[PrimitiveCall, TaskCall]:
        calls = self._calls.by_rows
        if rows not in calls:
            while len(calls) >= KEPT_CALLS:
                del calls[next(iter(calls))]
            calls[rows] = self._made(rows)
        return calls[rows]

    def _made(self, rows: int) -> tuple[PrimitiveCall, TaskCall]:
        """The product and what follows its sums, for so many rows."""
        (inner, columns), parameters = self._parameters.shape, self._parameters
        src, dst = contiguous((rows, inner), _UINT8), contiguous((rows, columns), _INT32)
        is_small = rows * inner * columns < TEAM_PRODUCTS
        with team_of(1) if is_small else contextlib.nullcontext():
            primitive = matmul(src, any_layout((inner, columns), _INT8), None, dst)
        if primitive is None:
            raise RuntimeException(f"oneDNN has no fast product of uint8 ({rows}, {inner}) and int8 ({inner}, {columns})")
        layout = primitive.layout(Argument.WEIGHTS)
        constants = [(int(Argument.WEIGHTS), layout, self._matrix.in_layout(layout))]
        ends = [(Argument.SRC, src, src), (Argument.DST, dst, dst)]
        product = PrimitiveCall(primitive, ends, constants, self._scratch, is_small=is_small)
        finish = TaskCall(MODULE, "sums_to_float", (*[0] * 8, rows, columns, inner, 0), threads_for(4 * rows * columns))
        zero_points = parameters.zero_points if parameters.zero_points.any() else None
        for place, array in ((4, self._matrix.column_sums), (5, parameters.scales), (6, zero_points)):
            finish.point(place, array)
        return product, finish


def _aim(finish: TaskCall, operand: _Operand, sums: HostArray, bias: HostArray | None, out: HostArray) -> None:
    """Tell the task where all is."""
    places = ((0, sums), (1, operand.codes), (2, out), (3, operand.scale), (7, bias), (11, operand.zero_point))
    for place, array in places:
        finish.point(place, array)


class _DynamicKernel(IntegerProductKernel):
    """A is quantized by its own range."""

    def can_compute(self, inputs: Sequence[Any]) -> bool:
        return super().can_compute(inputs) and inputs[0].dtype == _FLOAT

    def operand(self, inputs: Sequence[Any], memory: Memory) -> _Operand:
        a = np.ascontiguousarray(inputs[0])
        codes = memory("quantized", (a.size // a.shape[-1], a.shape[-1]), _UINT8)
        return _Operand(codes, memory("scale", (1,), _FLOAT), memory("zero point", (1,), _UINT8), a)


class _QuantizedKernel(IntegerProductKernel):
    """A is quantized already, with one scale."""

    b_scale, b_zero_point, bias = 3, 5, 6

    def can_compute(self, inputs: Sequence[Any]) -> bool:
        zero_point = inputs[4] if len(inputs) > 4 else None
        is_single = inputs[2].size == 1 and inputs[2].dtype == _FLOAT and (zero_point is None or zero_point.size == 1)
        return super().can_compute(inputs) and inputs[0].dtype == _UINT8 and bool(is_single)

    def operand(self, inputs: Sequence[Any], memory: Memory) -> _Operand:
        a, zero_point = inputs[0], inputs[4] if len(inputs) > 4 else None
        return _Operand(np.ascontiguousarray(a).reshape(math.prod(a.shape[:-1]), -1), inputs[2], zero_point)
