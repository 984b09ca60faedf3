"""Constant inputs rearranged once for the kernels that want it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ort_sdk.api import NotPacked, PrePackedWeights, Tensor

__all__ = ["PrepackHook", "prepack_inputs"]

PrepackHook = Callable[[Any, Tensor, int], "PrePackedWeights | NotPacked | None"]
"""The provider's ``prepack`` hook bound to it: ``hook(kernel, tensor, input_index)``; None means no opinion."""


def prepack_inputs(kernel: Any, constants: dict[int, Tensor], hook: PrepackHook) -> frozenset[int]:
    """Offer a kernel's constant inputs for packing.

    Args:
        kernel: asked only if it has ``prepack`` or the provider's hook answers for it.
        constants: input index → tensor.
        hook: the provider's hook.

    Returns:
        Indices of the inputs the kernel keeps packed and reads no more.
    """
    if not hasattr(kernel, "use_prepacked"):
        return frozenset()
    packed = set()
    for index, tensor in constants.items():
        weights = hook(kernel, tensor, index)
        if weights is None:
            weights = kernel.prepack(tensor, index, None)
        if isinstance(weights, PrePackedWeights):
            kernel.use_prepacked(weights, index)
            packed.add(index)
    return frozenset(packed)
