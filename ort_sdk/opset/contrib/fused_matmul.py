"""Matrix products with what ONNX Runtime fuses into them: transposition, scaling, activation."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.math.matrix import gemm

from .fused_activation import fused_activation
from .gelu import tanh_gelu

__all__ = ["activation_parameters", "fused_gemm", "fused_matmul", "fused_matmul_activation"]

MICROSOFT = "com.microsoft"
ACTIVATION_PARAMETERS = ("activation_alpha", "activation_beta")


@operator("FusedMatMul", domain=MICROSOFT)
@operator("TransposeMatMul", domain=MICROSOFT)
def fused_matmul(info: KernelInfo, xp: Any) -> Compute:
    """Alpha * A' @ B'; ``transBatch`` moves the first axis behind the batch axes, ``trans`` swaps the last two."""
    alpha, matmul = info.attribute("alpha", 1.0), xp.matmul
    trans_a, trans_b = bool(info.attribute("transA", 0)), bool(info.attribute("transB", 0))
    batch_a, batch_b = bool(info.attribute("transBatchA", 0)), bool(info.attribute("transBatchB", 0))

    def oriented(x: Array, trans: bool, batch: bool) -> Array:
        if x.ndim < 2:
            return x
        moved = xp.moveaxis(x, 0, -2) if batch else x
        return xp.matrix_transpose(moved) if trans else moved

    def compute(a: Array, b: Array) -> Array:
        result = matmul(oriented(a, trans_a, batch_a), oriented(b, trans_b, batch_b))
        return result if alpha == 1 else result * alpha

    return compute


def activation_parameters(info: KernelInfo) -> list[float]:
    """Alpha and beta of the activation, as many as the node gives."""
    values = [info.attribute(name, None) for name in ACTIVATION_PARAMETERS]
    return [value for value in values if value is not None]


@operator("FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul_activation(info: KernelInfo, xp: Any) -> Compute:
    """FusedMatMul followed by an activation."""
    multiply = fused_matmul(info, xp)
    activate = fused_activation(info, xp, activation_parameters(info))
    return multiply if activate is None else lambda a, b: activate(multiply(a, b))


@operator("FusedGemm", domain=MICROSOFT)
def fused_gemm(info: KernelInfo, xp: Any) -> Compute:
    """Gemm followed by an activation."""
    multiply = gemm(info, xp)
    activate = fused_activation(info, xp, activation_parameters(info))
    return multiply if activate is None else lambda a, b, c=None: activate(multiply(a, b, c))


@operator("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(_info: KernelInfo, xp: Any) -> Compute:
    """FastGelu(X @ W + bias)."""
    activate = tanh_gelu(xp)

    def compute(x: Array, w: Array, bias: Array | None = None) -> Array:
        result = xp.matmul(x, w)
        return activate(result if bias is None else result + bias)

    return compute
