"""oneDNN's primitives behind calls on arrays of any layout, and activations as its post-ops."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import HostArray
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.onednn.constants import Algorithm
from ort_sdk_cpu.onednn.execution import Execution
from ort_sdk_cpu.onednn.post_ops import Eltwise
from ort_sdk_cpu.onednn.primitive import Primitive

from .activation import Activation, ActivationKind
from .layouts.call import LayoutCall, ZeroPadding
from .layouts.memory import AnyLayout

__all__ = ["PrimitiveCall", "eltwise_of"]

_ALGORITHMS = {
    ActivationKind.CLIP: Algorithm.CLIP_V2,
    ActivationKind.LEAKY_RELU: Algorithm.RELU,
    ActivationKind.SWISH: Algorithm.SWISH,
    ActivationKind.HARD_SWISH: Algorithm.HARD_SWISH,
    ActivationKind.SIGMOID: Algorithm.LOGISTIC,
    ActivationKind.TANH: Algorithm.TANH,
    ActivationKind.HARD_SIGMOID: Algorithm.HARD_SIGMOID,
    ActivationKind.LINEAR: Algorithm.LINEAR,
}
"""Gelu is left out: oneDNN's has more than twice the error of the compiled one."""


def eltwise_of(activation: Activation) -> Eltwise:
    """The post-op that computes an activation.

    Args:
        activation: not ``IDENTITY``, for which there is no post-op, and not ``GELU``.
    """
    return Eltwise(_ALGORITHMS[activation.kind], activation.alpha, activation.beta)


class PrimitiveCall(LayoutCall):
    """A primitive on arrays of given layouts. For one thread at a time.

    Args:
        primitive: what runs.
        arguments: of a call, in order, DST last: (argument, layout of the array, layout the primitive wants).
        constants: arguments that are the same in every call: (argument, layout, array).
        workspace: the workspace for copies.
        is_small: whether the primitive was made for one thread; see ``Execution``.
        padding: see ``LayoutCall``.
    """

    def __init__(
        self,
        primitive: Primitive,
        arguments: Sequence[tuple[int, AnyLayout, AnyLayout]],
        constants: Sequence[tuple[int, AnyLayout, HostArray]],
        workspace: Workspace,
        *,
        is_small: bool = False,
        padding: ZeroPadding | None = None,
    ) -> None:
        wanted: dict[int, AnyLayout] = {argument: target for argument, _, target in arguments}
        wanted |= {argument: layout for argument, layout, _ in constants}
        execution = Execution(primitive, wanted, is_small=is_small)
        for argument, _, array in constants:
            execution.set(argument, array)
        super().__init__(execution, arguments, workspace, is_small=is_small, padding=padding)
