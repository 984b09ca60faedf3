"""oneDNN's primitives behind calls on arrays of any layout, and activations as its post-ops."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ort_sdk.api import HostArray, RuntimeException
from ort_sdk_cpu.jit.native_call import NativeCall
from ort_sdk_cpu.memory.workspace import Scratch
from ort_sdk_cpu.onednn.constants import Algorithm, Argument
from ort_sdk_cpu.onednn.execution import Execution
from ort_sdk_cpu.onednn.post_ops import Eltwise
from ort_sdk_cpu.onednn.primitive import Primitive, reorder
from ort_sdk_cpu.platform import threads

from .activation import Activation, ActivationKind
from .layouts.call import LayoutCall, ZeroPadding
from .layouts.memory import AnyLayout

__all__ = ["PrimitiveCall", "eltwise_of", "reorder_copy"]

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
        scratch: gives workspace for copies.
        is_small: whether the primitive was made for one thread; see ``Execution``.
        padding: see ``LayoutCall``.
    """

    def __init__(
        self,
        primitive: Primitive,
        arguments: Sequence[tuple[int, AnyLayout, AnyLayout]],
        constants: Sequence[tuple[int, AnyLayout, HostArray]],
        scratch: Scratch,
        *,
        is_small: bool = False,
        padding: ZeroPadding | None = None,
    ) -> None:
        wanted: dict[int, AnyLayout] = {argument: target for argument, _, target in arguments}
        wanted |= {argument: layout for argument, layout, _ in constants}
        execution = Execution(primitive, wanted, is_small=is_small)
        for argument, _, array in constants:
            execution.set(argument, array)
        super().__init__(execution, arguments, scratch, is_small=is_small, padding=padding)


class _ReorderCopy:
    """A copy by oneDNN's reorder."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    def aim(self, source: HostArray, target: HostArray) -> None:
        """Use these arrays' memory."""
        self._execution.set(Argument.SRC, source)
        self._execution.set(Argument.DST, target)

    def release(self) -> None:
        """Keep no array alive."""
        self._execution.forget(Argument.SRC)
        self._execution.forget(Argument.DST)

    @property
    def native(self) -> NativeCall:
        """The same for callers that need no Python."""
        return self._execution.native

    def __call__(self) -> None:
        """Copy."""
        self._execution()


def reorder_copy(source: AnyLayout, target: AnyLayout, *, is_small: bool) -> _ReorderCopy:
    """A copy between layouts, of which one or both may be oneDNN's own.

    Raises:
        RuntimeException: oneDNN has no fast one, or cannot be loaded.
    """
    with threads.team_of(1) if is_small else contextlib.nullcontext():
        primitive = reorder(source, target)
    if primitive is None:
        raise RuntimeException(f"oneDNN has no fast copy from layout {source} to {target}")
    return _ReorderCopy(Execution(primitive, {Argument.SRC: source, Argument.DST: target}, is_small=is_small))
