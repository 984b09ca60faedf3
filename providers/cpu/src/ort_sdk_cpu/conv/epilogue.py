"""What direct convolutions do to their sums before they are stored, as their tasks take it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ort_sdk.api import KernelInfo
from ort_sdk.api.data_classes import dataclass
from ort_sdk_cpu.kernel.activation import IDENTITY, Activation, ActivationKind, activation_of

from .arguments.direct import ActivationWords, Epilogue

__all__ = ["ConvEpilogue", "node_activation"]

_KINDS = frozenset(
    {
        ActivationKind.IDENTITY,
        ActivationKind.CLIP,
        ActivationKind.LEAKY_RELU,
        ActivationKind.SWISH,
        ActivationKind.HARD_SWISH,
        ActivationKind.SIGMOID,
    }
)
"""What ``conv.microkernels.epilogue`` computes."""


def node_activation(info: KernelInfo) -> Activation | None:
    """The activation of a FusedConv node, ``IDENTITY`` of any other; None for one that no epilogue has."""
    return activation_of(str(info.attribute("activation", "") or ""), tuple(info.attribute("activation_params", None) or ()))


@dataclass(frozen=True, slots=True)
class ConvEpilogue:
    """``scale * activation(sum + bias + addend) + shift``, to which a tensor may be added at last."""

    activation: Activation = IDENTITY
    is_scaled: bool = False
    scale: float = 1.0
    shift: float = 0.0

    @property
    def arguments(self) -> Epilogue:
        """As tasks take it; what is added at last is pointed later."""
        activation = self.activation
        return Epilogue(
            activation=int(activation.kind),
            alpha=float(activation.alpha),
            beta=float(activation.beta),
            last=0,
            is_scaled=int(self.is_scaled),
            scale=self.scale,
            shift=self.shift,
        )

    @property
    def words(self) -> ActivationWords:
        """The activation alone."""
        return ActivationWords(int(self.activation.kind), float(self.activation.alpha), float(self.activation.beta))

    @classmethod
    def of(cls, info: KernelInfo) -> ConvEpilogue | None:
        """A node's; None if the tasks do not have its activation."""
        found = node_activation(info)
        return None if found is None else cls.of_activations((found,))

    @classmethod
    def of_activations(cls, activations: Sequence[Activation]) -> ConvEpilogue | None:
        """An activation and a linear one behind it, or one of them; None if the tasks do not have them."""
        *before, last = (IDENTITY, *(each for each in activations if each != IDENTITY))
        if last.kind is ActivationKind.LINEAR:
            made = cls.of_activations(before)
            if made is None or made.is_scaled:
                return None
            return cls(made.activation, is_scaled=True, scale=last.alpha, shift=last.beta)
        if len(before) > 1 or last.kind not in _KINDS:
            return None
        return cls(_as_bounds(last))


def _as_bounds(activation: Activation) -> Activation:
    """ReLU as bounds, which micro-kernels apply to their accumulators."""
    is_relu = activation.kind is ActivationKind.LEAKY_RELU and not activation.alpha
    return Activation(ActivationKind.CLIP, 0.0, math.inf) if is_relu else activation
