"""Dropout, all versions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, HostArray, InvalidArgument, KernelInfo, OpKernel, TensorElementType
from ort_sdk.opset.definition import operator

__all__ = ["Dropout", "dropout", "dropout_inference", "dropout_test_attribute"]


class Dropout(OpKernel):
    """Zeroes elements at random and scales the others up in training; passes everything in inference.

    Args:
        info: the node.
        xp: array namespace.
        ratio: share of dropped elements where the node does not give one.
        training: whether the node trains where it does not say.
    """

    shape_inputs = ()

    def __init__(self, info: KernelInfo, xp: Any, ratio: float, *, training: bool) -> None:
        self._info, self._xp = info, xp
        self._ratio, self._training = ratio, training
        seed = info.attribute("seed", None)
        self._seed = None if seed is None else seed & _SEEDS
        self._type = info.input_element_type(0) or TensorElementType.FLOAT
        # Until version 7 the mask has the type of the data, since 10 it is boolean.
        self._mask_type = self._type if info.since_version < 10 else TensorElementType.BOOL
        # As in ONNX Runtime: before version 12, a mask of what was dropped, which is nothing.
        self._mask_when_passing = info.since_version >= 12
        self._wants_mask = info.wants_output(1)
        mode = info.constant_input(2)
        self.deterministic = not training and (not info.has_input(2) or (mode is not None and not mode.item()))

    def compute(self, data: Array, ratio: HostArray | None = None, training_mode: HostArray | None = None) -> Any:
        """Output, and the mask of kept elements if asked for."""
        share = self._ratio if ratio is None else float(ratio)
        if not 0 <= share < 1:
            raise InvalidArgument(f"{self._info.describe()}: ratio is {share}; it must be in [0, 1)")
        training = self._training if training_mode is None else bool(training_mode)
        if not training or share == 0:
            return self._with_mask(data, None)
        kept = self._random(tuple(data.shape)) >= share
        return self._with_mask(self._dropped(data, kept, 1 / (1 - share)), kept)

    def _random(self, shape: tuple[int, ...]) -> HostArray:
        # RandomState's stream never changes between NumPy versions, so a seed means the same mask for good.
        return np.random.RandomState(self._seed).uniform(0.0, 1.0, shape)

    def _dropped(self, data: Array, kept: HostArray, scale: float) -> Array:
        xp, compute_type = self._xp, self._xp.compute_type(self._type)
        factors = xp.from_host(kept.astype(compute_type.numpy_dtype) * compute_type.numpy_dtype.type(scale))
        return xp.astype(xp.astype(data, compute_type) * factors, self._type)

    def _with_mask(self, output: Array, kept: HostArray | None) -> Any:
        if not self._wants_mask:
            return output
        mask = np.full(tuple(output.shape), self._mask_when_passing) if kept is None else kept
        return output, self._xp.from_host(mask.astype(self._mask_type.numpy_dtype))


_SEEDS = 0xFFFF_FFFF
"""Seeds that RandomState takes; of others the lowest bits count."""


@operator("Dropout", since=12, host_inputs=(1, 2), deterministic=False, moves=True, alias=((0, 0),))
def dropout(info: KernelInfo, xp: Any) -> OpKernel:
    """Ratio and training mode are inputs."""
    return Dropout(info, xp, 0.5, training=False)


@operator("Dropout", since=7, until=10, moves=True, alias=((0, 0),))
def dropout_inference(info: KernelInfo, xp: Any) -> OpKernel:
    """Versions 7 and 10 say nothing about training: they pass their input."""
    return Dropout(info, xp, 0.0, training=False)


@operator("Dropout", until=6, deterministic=False, moves=True, alias=((0, 0),))
def dropout_test_attribute(info: KernelInfo, xp: Any) -> OpKernel:
    """Training unless ``is_test`` is set."""
    return Dropout(info, xp, float(info.attribute("ratio", 0.5)), training=not info.attribute("is_test", 0))
