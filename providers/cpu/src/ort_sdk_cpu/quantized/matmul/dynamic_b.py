"""GEMMs of 8-bit matrices that both come with each run: MatMulInteger and QLinearMatMul by compiled tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk_cpu.jit.native_call import in_sequence
from ort_sdk_cpu.jit.task import TaskCall
from ort_sdk_cpu.kernel.selecting import SelectingMaker
from ort_sdk_cpu.kernel.task_writer import threads_for
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer
from ort_sdk_cpu.quantized.arguments.linear import MODULE as LINEAR
from ort_sdk_cpu.quantized.arguments.linear import Requantize
from ort_sdk_cpu.quantized.parameters import BYTES, limits, parameters_of, sign_bit

from .arguments.dynamic_b import MODULE, GemmDynamicB
from .select import QuantizedGemmAlgorithm, select_dynamic_b, threads_for_work

__all__ = ["matmul_integer_writer", "qlinear_matmul_writer"]

NAME = "gemm_dynamic_b"
PANEL = 64
_FOUR_BYTES, _SIGN = 0x01010101, 128
_COLUMN_BYTES = 2 * 4 * PANEL
_INT32, _FLOAT = np.dtype(np.int32), np.dtype(np.float32)


class _Gemm:
    """A batch of GEMMs of some shapes, in int32. For one thread at a time.

    Args:
        a: an array like the first, at least two axes.
        b: like the second, of as many matrices, or one.
        zero_points: theirs, or None.
    """

    def __init__(self, a: HostArray, b: HostArray, zero_points: Sequence[HostArray | None]) -> None:
        k, columns = b.shape[-2:]
        matrices = math.prod(b.shape[:-2])
        rows, pitch = math.prod(a.shape[:-1]) // matrices, -(-k // 4) * 4
        # Bytes behind a row of A add nothing: they are zeros once they are unsigned.
        self._padded = None if pitch == k else np.full((*a.shape[:-1], pitch), _neutral(a.dtype), a.dtype)
        threads = threads_for_work(matrices * rows * k * columns)
        work_bytes = -(-pitch // 64) * 64 + _COLUMN_BYTES + pitch * PANEL
        self._work = np.empty(work_bytes * threads + 64, np.uint8)
        each = int(zero_points[1] is not None and zero_points[1].size > 1)
        signs = (sign_bit(a) * _FOUR_BYTES, _SIGN - sign_bit(b))
        sizes = (matrices, rows, k, columns, pitch, k * columns)
        arguments = GemmDynamicB(0, 0, 0, 0, 0, self._work, *sizes, *signs, each, work_bytes)
        self._call = TaskCall(MODULE, NAME, arguments, threads)

    def _aim(self, a: HostArray, b: HostArray, zero_points: Sequence[HostArray | None], out: HostArray) -> None:
        arrays = (a if self._padded is None else self._padded, b, out, *zero_points)
        fields = (GemmDynamicB.a, GemmDynamicB.b, GemmDynamicB.out, GemmDynamicB.a_zero_point, GemmDynamicB.b_zero_points)
        for field, array in zip(fields, arrays, strict=True):
            self._call.point(field, array)

    def run(self, a: HostArray, b: HostArray, zero_points: Sequence[HostArray | None], out: HostArray) -> None:
        """Write the result, int32."""
        if self._padded is not None:
            self._padded[..., : a.shape[-1]] = a
        self._aim(a, b, zero_points, out)
        self._call.run()

    def bind_arrays(
        self, a: HostArray, b: HostArray, zero_points: Sequence[HostArray | None], out: HostArray
    ) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if A is copied first."""
        if self._padded is not None:
            return None
        self._aim(a, b, zero_points, out)
        return self._call.bound_call(self, a, b, *zero_points, out)


def _neutral(dtype: np.dtype[Any]) -> int:
    return -128 if dtype == np.int8 else 0


def _are_contiguous(arrays: Sequence[HostArray | None]) -> bool:
    return all(array is None or array.flags.c_contiguous for array in arrays)


class _Writer:
    """A GEMM in int32, and its requantization.

    Args:
        gemm: of arrays like these.
        inputs: indices of A, B and their zero points among the writer's arrays; -1 for none.
        otherwise: writes arrays that are not contiguous.
        requantization: the task, with the result's address to be set, its sums, and what else it reads; None for int32 results.
    """

    def __init__(
        self,
        gemm: _Gemm,
        inputs: Sequence[int],
        otherwise: Writer,
        requantization: tuple[TaskCall, HostArray, Any] | None = None,
    ) -> None:
        self._gemm, self._inputs, self._otherwise, self._requantization = gemm, inputs, otherwise, requantization

    def _read(self, arrays: Sequence[Any]) -> list[Any]:
        return [None if index < 0 else arrays[index] for index in self._inputs]

    def __call__(self, *arrays: Any) -> None:
        """Write the output."""
        a, b, *zero_points = self._read(arrays)
        if not _are_contiguous((a, b, *zero_points, arrays[-1])):
            self._otherwise(*arrays)
        elif self._requantization is None:
            self._gemm.run(a, b, zero_points, arrays[-1])
        else:
            call, sums, _ = self._requantization
            self._gemm.run(a, b, zero_points, sums)
            call.point(Requantize.out, arrays[-1])
            call.run()

    def bind_arrays(self, *arrays: Any) -> Callable[[], Any] | None:
        """The call on arrays that stay the same; None if one is not contiguous."""
        a, b, *zero_points = self._read(arrays)
        if not _are_contiguous((a, b, *zero_points, arrays[-1])):
            return None
        if self._requantization is None:
            return self._gemm.bind_arrays(a, b, zero_points, arrays[-1])
        call, sums, kept = self._requantization
        gemm = self._gemm.bind_arrays(a, b, zero_points, sums)
        if gemm is None:
            return None
        call.point(Requantize.out, arrays[-1])
        return in_sequence([gemm, call.bound_call(sums, kept, arrays[-1])])


def matmul_integer_writer(info: KernelInfo, otherwise: Writer) -> MakeWriter:
    """Makes writers of MatMulInteger.

    Args:
        info: the node.
        otherwise: writes what the task does not.
    """
    indices = (0, 1, *(index if info.has_input(index) else -1 for index in (2, 3)))

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> tuple[QuantizedGemmAlgorithm, Writer]:
        a, b = inputs[:2]
        zero_points = [None if index < 0 else inputs[index] for index in indices[2:]]
        algorithm = select_dynamic_b(a, b, zero_points)
        if outputs[0].dtype != _INT32 or algorithm is QuantizedGemmAlgorithm.NUMPY:
            return QuantizedGemmAlgorithm.NUMPY, otherwise
        return algorithm, _Writer(_Gemm(a, b, zero_points), indices, otherwise)

    return SelectingMaker(make)


def qlinear_matmul_writer(info: KernelInfo, otherwise: Writer) -> MakeWriter | None:
    """Makes writers of QLinearMatMul with constant scales and zero points, one each; None for others."""
    a, b, y = (parameters_of(info, index, index + 1) for index in (1, 4, 6))
    if a is None or b is None or y is None:
        return None
    indices = (0, 3, 2, 5)

    def make(inputs: Sequence[Any], outputs: Sequence[HostArray]) -> tuple[QuantizedGemmAlgorithm, Writer]:
        out = outputs[0]
        left, right, *zero_points = (inputs[index] for index in indices)
        algorithm = select_dynamic_b(left, right, zero_points)
        if out.dtype not in BYTES or algorithm is QuantizedGemmAlgorithm.NUMPY:
            return QuantizedGemmAlgorithm.NUMPY, otherwise
        columns = out.shape[-1]
        scale = np.float32(a[1]) * np.float32(b[1]) / np.float32(y[1])
        sums, scales = np.empty(out.shape, _INT32), np.full(columns, scale, _FLOAT)
        arguments = Requantize(sums, 0, scales, None, out.size // columns, columns, y[0], *limits(out))
        call = TaskCall(LINEAR, "requantize", arguments, threads_for(out.size))
        return algorithm, _Writer(_Gemm(left, right, zero_points), indices, otherwise, (call, sums, scales))

    return SelectingMaker(make)
