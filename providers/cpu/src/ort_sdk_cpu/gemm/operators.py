"""Matrix products into given outputs, then what is fused behind them in place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, TensorElementType
from ort_sdk.opset.contrib.fused_activation import fused_activation
from ort_sdk.opset.contrib.fused_matmul import activation_parameters
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.elementwise.activation import InPlace, in_place_activation
from ort_sdk_cpu.kernel.activation import IDENTITY
from ort_sdk_cpu.kernel.bound import (
    BindableKernel,
    DirectlyBindable,
    MakeWriter,
    Writer,
    bindable,
    has_half_weight,
    made_by,
    stores_packed_weights,
)
from ort_sdk_cpu.memory.workspace import scratch_of
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.threads import matrix_product

from .batched import SHORTEST_DOT, GemmOperands, GemmWriter
from .epilogue import epilogue_activation

__all__: list[str] = []


@bindable("MatMul", has_weight=True, reads_halves=True)
def matmul(info: KernelInfo, _compute: Any) -> MakeWriter:
    """Matrix product with NumPy's rules; a stack times one matrix is a single product."""
    scratch = scratch_of(info)

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        a, b = inputs
        if b.ndim != 2 or a.ndim < 3 or 0 in a.shape:
            return GemmWriter(matrix_product, scratch, GemmOperands)
        rows, columns, inner = math.prod(a.shape[:-1]), b.shape[1], a.shape[-1]
        write = lambda a, b, out: matrix_product(a.reshape(rows, inner), b, out.reshape(rows, columns))  # noqa: E731
        return GemmWriter(write, scratch, GemmOperands)

    return make


@bindable("Gemm", has_weight=True, reads_halves=True)
@bindable("FusedGemm", domain="com.microsoft", has_weight=True, reads_halves=True)
def gemm(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """alpha·A'·B' + beta·C, then an activation."""
    if not _is_float(info):
        return None
    trans_a, trans_b = bool(info.attribute("transA", 0)), bool(info.attribute("transB", 0))
    alpha, beta = info.attribute("alpha", 1.0), info.attribute("beta", 1.0)
    activate = _activation(info)

    def write(a: HostArray, b: HostArray, *rest: Any) -> None:
        out = rest[-1]
        c = rest[0] if len(rest) > 1 else None
        matrix_product(a.T if trans_a else a, b.T if trans_b else b, out)
        if alpha != 1:
            np.multiply(out, alpha, out)
        if c is not None:
            np.add(out, c if beta == 1 else c * beta, out)
        if activate is not None:
            activate(out, out)

    activation, turns_weight = epilogue_activation(info), trans_b and _is_narrow_constant(info)
    turned = _turned_once()

    def operands(a: HostArray, b: HostArray, *rest: Any) -> GemmOperands:
        addend = rest[0] if len(rest) > 1 else None
        right = turned(b) if turns_weight else b.T if trans_b else b
        return GemmOperands(a.T if trans_a else a, right, rest[-1], addend, alpha, beta, activation or IDENTITY)

    scratch = scratch_of(info)
    return lambda _inputs, _outputs: GemmWriter(write, scratch, None if activation is None else operands)


@bindable("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", domain="com.microsoft", has_weight=True, reads_halves=True)
def fused_matmul(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """alpha·A'·B', then an activation."""
    if not _is_float(info):
        return None
    alpha = info.attribute("alpha", 1.0)
    trans_a, trans_b = bool(info.attribute("transA", 0)), bool(info.attribute("transB", 0))
    batch_a, batch_b = bool(info.attribute("transBatchA", 0)), bool(info.attribute("transBatchB", 0))
    activate = _activation(info)

    def write(a: HostArray, b: HostArray, out: HostArray) -> None:
        matrix_product(_oriented(a, trans=trans_a, batch=batch_a), _oriented(b, trans=trans_b, batch=batch_b), out)
        if alpha != 1:
            np.multiply(out, alpha, out)
        if activate is not None:
            activate(out, out)

    activation = epilogue_activation(info)

    def operands(a: HostArray, b: HostArray, out: HostArray) -> GemmOperands:
        first, second = _oriented(a, trans=trans_a, batch=batch_a), _oriented(b, trans=trans_b, batch=batch_b)
        return GemmOperands(first, second, out, None, alpha, 1.0, activation or IDENTITY)

    scratch = scratch_of(info)
    return lambda _inputs, _outputs: GemmWriter(write, scratch, None if activation is None else operands)


def _oriented(x: HostArray, *, trans: bool, batch: bool) -> HostArray:
    if x.ndim < 2:
        return x
    moved = np.moveaxis(x, 0, -2) if batch else x
    return np.matrix_transpose(moved) if trans else moved


def _activation(info: KernelInfo) -> InPlace | None:
    parameters = activation_parameters(info)
    return in_place_activation(info, parameters, fused_activation(info, NumpyNamespace(), parameters))


def _turned_once() -> Callable[[HostArray], HostArray]:
    """A function that transposes a constant matrix in memory when it first sees it."""
    made: list[HostArray] = []

    def turned(matrix: HostArray) -> HostArray:
        if not made:
            made.append(np.ascontiguousarray(matrix.T))
        return made[0]

    return turned


def _is_narrow_constant(info: KernelInfo) -> bool:
    """Whether input 1 is a constant matrix whose rows are too short for dot products."""
    tensor = info.constants.get(1)
    return tensor is not None and len(tensor.shape) == 2 and tensor.shape[1] < SHORTEST_DOT


def _is_float(info: KernelInfo) -> bool:
    element_type = info.input_element_type(0)
    return element_type is not None and element_type.numpy_dtype.kind == "f"


_MIN_ELEMENTS = 1 << 14
"""Elements of a weight below which NumPy is as fast, and no library is loaded."""
_MIN_TURNED_COLUMNS = 64
"""Columns of a product from which on."""
_MIN_SIZE = 24
"""Vectors have 16 lanes: a weight of few rows or columns fills too few of them."""


@made_by("MatMul", "Gemm")
@made_by("FusedMatMul", "FusedMatMulActivation", "FusedGemm", "TransposeMatMul", domain="com.microsoft")
def large_product(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel | None:
    """The node with a large constant weight: in panels, read where it lies, or packed for oneDNN if files keep it.

    With others, small products are computed as in programs; None where NumPy computes them there.
    """
    if not _has_large_weight(info) or any(info.attribute(name, 0) for name in ("transBatchA", "transBatchB")):
        return _small_product(info, kernel, make_writer)
    from .epilogue import epilogue_of

    transposed = bool(info.attribute("transB", 0))
    stays = libraries.numba().is_usable and (not stores_packed_weights(info) or _gets_panels(info))
    turns, is_half = bool(info.attribute("transA", 0)), info.constants[1].element_type is not TensorElementType.FLOAT
    if (turns or is_half) and not stays:
        return None
    if turns:
        if not _is_worth_turning(info, transposed=transposed):
            return None
        from .transposed_a import TransposedAGemm

        return TransposedAGemm(kernel, make_writer, info, transposed=transposed, epilogue=epilogue_of(info))
    if stays:
        from .constant_b import ConstantBGemm

        epilogue, kind = epilogue_of(info), ConstantBGemm
        if epilogue.finish is not None:
            from .unfused_activation import GemmAndActivation, expands_to_steps

            kind = GemmAndActivation if expands_to_steps(info, epilogue) else ConstantBGemm
        return kind(kernel, make_writer, info, transposed=transposed, epilogue=epilogue)
    if libraries.onednn().is_usable:
        from .onednn import OneDnnGemm

        return OneDnnGemm(kernel, make_writer, info, transposed=transposed, epilogue=epilogue_of(info))
    return None


def _gets_panels(info: KernelInfo) -> bool:
    from .packing import is_worth_packing

    return is_worth_packing(info, info.constants[1])


def _has_large_weight(info: KernelInfo) -> bool:
    """Whether input 1 is a constant matrix that is worth a library: of float32, or of halves that a task reads."""
    tensor = info.constants.get(1)
    if tensor is None or len(tensor.shape) != 2 or info.input_element_type(0) is not TensorElementType.FLOAT:
        return False
    is_large = math.prod(tensor.shape) >= _MIN_ELEMENTS and min(tensor.shape) >= _MIN_SIZE
    return is_large and (tensor.element_type is TensorElementType.FLOAT or has_half_weight(info))


def _is_worth_turning(info: KernelInfo, *, transposed: bool) -> bool:
    """Whether a first operand that has to be copied into the other order costs little beside the product with it."""
    first, weight = info.inputs[0], info.constants[1]
    rank = None if first is None else first.rank
    return rank is not None and rank >= 2 and weight.shape[0 if transposed else 1] >= _MIN_TURNED_COLUMNS


def _small_product(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel | None:
    types = {argument.element_type for argument in (*info.inputs, *info.outputs) if argument is not None}
    turned = any(info.attribute(name, 0) for name in ("transA", "transBatchA", "transBatchB"))
    is_plain = types == {TensorElementType.FLOAT} and not turned and info.attribute("beta", 1.0) == 1
    activation = epilogue_activation(info)
    if not is_plain or activation is None or stores_packed_weights(info) or not libraries.numba().is_usable:
        return None
    from .small import SmallGemm

    product = SmallGemm(
        scratch_of(info),
        transposed=bool(info.attribute("transB", 0)),
        alpha=float(info.attribute("alpha", 1.0)),
        activation=activation,
    )
    return DirectlyBindable(kernel, make_writer, product)
