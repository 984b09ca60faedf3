"""MatMul, Gemm and their fused forms: GEMMs into given outputs, then what is fused behind them in place.

What plans and calls tasks is imported when a program is bound, or a kernel made that needs it: sessions are made without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo, Tensor, TensorElementType
from ort_sdk.opset.contrib.fused_activation import fused_activation
from ort_sdk.opset.contrib.fused_matmul import activation_parameters
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.elementwise.activation import InPlace, in_place_activation
from ort_sdk_cpu.kernel.activation import IDENTITY
from ort_sdk_cpu.kernel.bindable import BindableKernel, bindable, kernel_maker
from ort_sdk_cpu.kernel.bound import has_float16_weight, stores_packed_weights
from ort_sdk_cpu.kernel.writer import MakeWriter, Writer
from ort_sdk_cpu.memory.workspace import Workspace, workspace_of
from ort_sdk_cpu.platform.threads import blas_matmul

from .epilogue import epilogue_activation
from .operands import GemmOperands
from .select import PANEL_ELEMENTS, SHORTEST_DOT, ChosenAlgorithm, GemmKernel, GemmNode, select_kernel

__all__: list[str] = []


class MakeGemmWriter:
    """Makes writers, and tells what they chose.

    Args:
        make: makes a writer.
        chosen: what the writers tell.
    """

    def __init__(self, make: MakeWriter, chosen: ChosenAlgorithm) -> None:
        self._make, self._chosen = make, chosen

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[HostArray]) -> Writer:
        """A writer for arrays of these shapes."""
        return self._make(inputs, outputs)

    @property
    def algorithm(self) -> str | None:
        """Of the writer made or used last."""
        return self._chosen.name


@bindable("MatMul", has_weight=True, float16_weight=True)
def matmul(info: KernelInfo, _compute: Any) -> MakeWriter:
    """Matrix product with NumPy's rules; a batch times one matrix is a single GEMM."""
    workspace, chosen = workspace_of(info), ChosenAlgorithm()

    def make(inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        from .batched import GemmWriter

        a, b = inputs
        if b.ndim != 2 or a.ndim < 3 or 0 in a.shape:
            return GemmWriter(blas_matmul, workspace, GemmOperands, chosen)
        rows, columns, inner = math.prod(a.shape[:-1]), b.shape[1], a.shape[-1]
        write = lambda a, b, out: blas_matmul(a.reshape(rows, inner), b, out.reshape(rows, columns))  # noqa: E731
        return GemmWriter(write, workspace, GemmOperands, chosen)

    return MakeGemmWriter(make, chosen)


@bindable("Gemm", has_weight=True, float16_weight=True)
@bindable("FusedGemm", domain="com.microsoft", has_weight=True, float16_weight=True)
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
        blas_matmul(a.T if trans_a else a, b.T if trans_b else b, out)
        if alpha != 1:
            np.multiply(out, alpha, out)
        if c is not None:
            np.add(out, c if beta == 1 else c * beta, out)
        if activate is not None:
            activate(out, out)

    activation, transposes_b = epilogue_activation(info), trans_b and _is_narrow_constant(info)
    transposed = _transposed_once()

    def operands(a: HostArray, b: HostArray, *rest: Any) -> GemmOperands:
        addend = rest[0] if len(rest) > 1 else None
        right = transposed(b) if transposes_b else b.T if trans_b else b
        return GemmOperands(a.T if trans_a else a, right, rest[-1], addend, alpha, beta, activation or IDENTITY)

    workspace = workspace_of(info)
    return _gemm_writers(write, workspace, None if activation is None else operands)


@bindable("FusedMatMul", "FusedMatMulActivation", "TransposeMatMul", domain="com.microsoft", has_weight=True, float16_weight=True)
def fused_matmul(info: KernelInfo, _compute: Any) -> MakeWriter | None:
    """alpha·A'·B', then an activation."""
    if not _is_float(info):
        return None
    alpha = info.attribute("alpha", 1.0)
    trans_a, trans_b = bool(info.attribute("transA", 0)), bool(info.attribute("transB", 0))
    batch_a, batch_b = bool(info.attribute("transBatchA", 0)), bool(info.attribute("transBatchB", 0))
    activate = _activation(info)

    def write(a: HostArray, b: HostArray, out: HostArray) -> None:
        blas_matmul(_oriented(a, trans=trans_a, batch=batch_a), _oriented(b, trans=trans_b, batch=batch_b), out)
        if alpha != 1:
            np.multiply(out, alpha, out)
        if activate is not None:
            activate(out, out)

    activation = epilogue_activation(info)

    def operands(a: HostArray, b: HostArray, out: HostArray) -> GemmOperands:
        first, second = _oriented(a, trans=trans_a, batch=batch_a), _oriented(b, trans=trans_b, batch=batch_b)
        return GemmOperands(first, second, out, None, alpha, 1.0, activation or IDENTITY)

    workspace = workspace_of(info)
    return _gemm_writers(write, workspace, None if activation is None else operands)


def _gemm_writers(write: Writer, workspace: Workspace, operands: Callable[..., GemmOperands] | None) -> MakeGemmWriter:
    chosen = ChosenAlgorithm()

    def make(_inputs: Sequence[Any], _outputs: Sequence[HostArray]) -> Writer:
        from .batched import GemmWriter

        return GemmWriter(write, workspace, operands, chosen)

    return MakeGemmWriter(make, chosen)


def _oriented(x: HostArray, *, trans: bool, batch: bool) -> HostArray:
    if x.ndim < 2:
        return x
    moved = np.moveaxis(x, 0, -2) if batch else x
    return np.matrix_transpose(moved) if trans else moved


def _activation(info: KernelInfo) -> InPlace | None:
    parameters = activation_parameters(info)
    return in_place_activation(info, parameters, fused_activation(info, NumpyNamespace(), parameters))


def _transposed_once() -> Callable[[HostArray], HostArray]:
    """A function that transposes a constant matrix in memory when it first sees it."""
    made: list[HostArray] = []

    def transposed(matrix: HostArray) -> HostArray:
        if not made:
            made.append(np.ascontiguousarray(matrix.T))
        return made[0]

    return transposed


def _is_narrow_constant(info: KernelInfo) -> bool:
    """Whether input 1 is a constant matrix whose rows are too short for dot products."""
    tensor = info.constants.get(1)
    return tensor is not None and len(tensor.shape) == 2 and tensor.shape[1] < SHORTEST_DOT


def _is_float(info: KernelInfo) -> bool:
    element_type = info.input_element_type(0)
    return element_type is not None and element_type.numpy_dtype.kind == "f"


@kernel_maker("MatMul", "Gemm")
@kernel_maker("FusedMatMul", "FusedMatMulActivation", "FusedGemm", "TransposeMatMul", domain="com.microsoft")
def gemm_kernel(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel | None:
    """The kernel that is selected; None for the usual one."""
    node = _node(info)
    return _KERNELS[select_kernel(node)](info, kernel, make_writer)


def _node(info: KernelInfo) -> GemmNode:
    b = info.constants.get(1)
    first = None if not info.inputs else info.inputs[0]
    common = GemmNode(
        trans_a=bool(info.attribute("transA", 0)),
        a_rank=None if first is None else first.rank,
        trans_batch=any(info.attribute(name, 0) for name in ("transBatchA", "transBatchB")),
        is_plain=_is_plain(info),
        stores_packed_weights=stores_packed_weights(info),
    )
    if b is None or len(b.shape) != 2 or info.input_element_type(0) is not TensorElementType.FLOAT:
        return common
    is_float16 = b.element_type is not TensorElementType.FLOAT
    if is_float16 and not has_float16_weight(info):
        return common
    k, n = reversed(b.shape) if info.attribute("transB", 0) else b.shape
    gets_panels = k * n >= PANEL_ELEMENTS and _gets_panels(info, b)
    return replace(common, k=k, n=n, is_float16=is_float16, gets_panels=gets_panels)


def _gets_panels(info: KernelInfo, b: Tensor) -> bool:
    from .packing import is_worth_packing

    return is_worth_packing(info, b)


def _is_plain(info: KernelInfo) -> bool:
    """Whether all is float32, nothing but B is transposed, and epilogues do all that follows."""
    types = {argument.element_type for argument in (*info.inputs, *info.outputs) if argument is not None}
    is_transposed = any(info.attribute(name, 0) for name in ("transA", "transBatchA", "transBatchB"))
    is_plain = types == {TensorElementType.FLOAT} and not is_transposed and info.attribute("beta", 1.0) == 1
    return is_plain and epilogue_activation(info) is not None


def _constant_b(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel:
    from .constant_b import ConstantBGemm
    from .epilogue import epilogue_of

    epilogue, kind = epilogue_of(info), ConstantBGemm
    if epilogue.finish is not None:
        from .unfused_activation import GemmAndActivation, expands_to_steps

        kind = GemmAndActivation if expands_to_steps(info, epilogue) else ConstantBGemm
    return kind(kernel, make_writer, info, transposed=bool(info.attribute("transB", 0)), epilogue=epilogue)


def _constant_b_transposed_a(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel:
    from .epilogue import epilogue_of
    from .transposed_a import TransposedAGemm

    transposed = bool(info.attribute("transB", 0))
    return TransposedAGemm(kernel, make_writer, info, transposed=transposed, epilogue=epilogue_of(info))


def _onednn(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel:
    from .epilogue import epilogue_of
    from .onednn import OneDnnGemm

    transposed = bool(info.attribute("transB", 0))
    return OneDnnGemm(kernel, make_writer, info, transposed=transposed, epilogue=epilogue_of(info))


def _small(info: KernelInfo, kernel: Any, make_writer: MakeWriter) -> BindableKernel:
    from .small import SmallGemm, SmallGemmKernel

    gemm = SmallGemm(
        workspace_of(info),
        transposed=bool(info.attribute("transB", 0)),
        alpha=float(info.attribute("alpha", 1.0)),
        activation=epilogue_activation(info) or IDENTITY,
    )
    return SmallGemmKernel(kernel, make_writer, gemm)


_KERNELS: dict[GemmKernel, Callable[[KernelInfo, Any, MakeWriter], BindableKernel | None]] = {
    GemmKernel.CONSTANT_B: _constant_b,
    GemmKernel.CONSTANT_B_TRANSPOSED_A: _constant_b_transposed_a,
    GemmKernel.ONEDNN: _onednn,
    GemmKernel.SMALL: _small,
    GemmKernel.USUAL: lambda _info, _kernel, _make_writer: None,
}
