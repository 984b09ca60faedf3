"""What follows the GEMM of a node, as far as tasks and primitives compute it, and the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk.opset.contrib.fused_activation import fused_activation
from ort_sdk.opset.contrib.fused_matmul import activation_parameters
from ort_sdk.opset.numpy_namespace import NumpyNamespace
from ort_sdk_cpu.elementwise.activation import in_place_activation
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation, activation_of

from .arguments.epilogue import EPILOGUE_KINDS

__all__ = ["Epilogue", "epilogue_activation", "epilogue_of"]

ADDEND = 2

Finish = Callable[[HostArray, Sequence[Any]], None]
"""``finish(out, other inputs)``: what is done to the result in place."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What follows ``alpha * A @ B``."""

    alpha: float = 1.0
    bias: HostArray | None = None
    """Constant (columns,), added by the primitive."""
    activation: Activation = IDENTITY
    """Applied by the primitive or task; one of ``EPILOGUE_KINDS``."""
    finish: Finish | None = None
    """Anything else, after all that."""
    beta: float = 0.0
    """Factor of the third input, if ``finish`` only adds that."""


def epilogue_of(info: KernelInfo) -> Epilogue:
    """What follows the GEMM of a node: scaling, a constant bias and an activation that epilogues have are part of it."""
    alpha = float(info.attribute("alpha", 1.0))
    bias, activation = _constant_bias(info), epilogue_activation(info)
    if info.has_input(ADDEND) and bias is None:
        beta = 0.0 if info.attribute("activation", "") else float(info.attribute("beta", 1.0))
        return Epilogue(alpha, finish=_finish(info), beta=beta)
    if activation is None:
        return Epilogue(alpha, bias, finish=_activate(info))
    return Epilogue(alpha, bias, activation)


def _constant_bias(info: KernelInfo) -> HostArray | None:
    """Beta times Gemm's third input, if it is a constant vector of N elements."""
    tensor = info.constants.get(ADDEND)
    columns = info.constants[1].shape[0 if info.attribute("transB", 0) else 1]
    if tensor is None or tuple(tensor.shape) not in {(columns,), (1, columns)}:
        return None
    bias = np.ascontiguousarray(tensor.numpy(), np.float32).reshape(columns)
    beta = np.float32(info.attribute("beta", 1.0))
    return bias if beta == 1 else bias * beta


def epilogue_activation(info: KernelInfo) -> Activation | None:
    """The activation of a node, ``IDENTITY`` for none; None for one that the tasks' epilogues do not have."""
    found = activation_of(str(info.attribute("activation", "") or ""), activation_parameters(info))
    return found if found is not None and found.kind in EPILOGUE_KINDS else None


def _activate(info: KernelInfo) -> Finish | None:
    parameters = activation_parameters(info)
    apply = in_place_activation(info, parameters, fused_activation(info, NumpyNamespace(), parameters))
    return None if apply is None else lambda out, _others: apply(out, out)


def _finish(info: KernelInfo) -> Finish:
    """Beta times the third input, whatever it is, then the activation."""
    beta, activate = info.attribute("beta", 1.0), _activate(info)

    def finish(out: HostArray, others: Sequence[Any]) -> None:
        np.add(out, others[0] if beta == 1 else others[0] * beta, out)
        if activate is not None:
            activate(out, others)

    return finish
