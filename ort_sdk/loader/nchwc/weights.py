"""Weights of convolutions in blocks: back to ONNX's order, and which of their channels are only there to fill blocks."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray, Tensor
from ort_sdk.graph.derived_tensor import DerivedTensor

__all__ = ["has_weights_for", "outputs_with_weights", "plain_weight", "shortened"]


def plain_weight(tensor: Tensor, block: int, shape: tuple[int, ...], *, in_blocks: bool) -> Tensor:
    """A weight in ONNX's order (M, C / group, kH, kW), computed when it is read.

    Args:
        tensor: as it is in the file, with channels rounded up to whole blocks.
        block: channels of a block.
        shape: of the result; channels beyond it are left out.
        in_blocks: whether the input's channels are in blocks, too (``OIHWBiBo``; else ``OIHWBo``).
    """

    def compute(tensor: Tensor) -> HostArray:
        stored = _by_blocks(tensor, block, in_blocks=in_blocks)
        order = (0, 5, 1, 4, 2, 3) if in_blocks else (0, 4, 1, 2, 3)
        plain = stored.transpose(order).reshape(tensor.shape)
        return np.ascontiguousarray(plain[: shape[0], : shape[1]])

    order = "OIHWBiBo" if in_blocks else "OIHWBo"
    return DerivedTensor(f"{order} of {block} to {list(shape)}", tensor.element_type, shape, [tensor], compute)


def shortened(tensor: Tensor, channels: int) -> Tensor:
    """The first elements of a bias."""
    if tensor.shape == (channels,):
        return tensor

    def compute(tensor: Tensor) -> HostArray:
        return tensor.numpy()[:channels].copy()

    return DerivedTensor(f"first {channels}", tensor.element_type, (channels,), [tensor], compute)


def outputs_with_weights(weight: Tensor, bias: Tensor | None, block: int) -> int:
    """Number of output channels up to the last one that has a weight or a bias which is not zero; at least one.

    Only channels of the last block are looked at, and weights only if the bias does not decide.
    """
    used = np.zeros(block, bool)
    if bias is not None:
        used |= bias.numpy()[-block:] != 0
    if not used[-1]:
        used |= (weight.numpy().reshape(-1, int(np.prod(weight.shape[1:])), block)[-1] != 0).any(axis=0)
    last = int(np.flatnonzero(used)[-1]) if used.any() else 0
    return weight.shape[0] - block + last + 1


def has_weights_for(tensor: Tensor, block: int, channels: int) -> bool:
    """Whether a weight whose input's channels are in blocks has one that is not zero for a channel from ``channels`` on.

    Args:
        tensor: as it is in the file.
        block: channels of a block.
        channels: more than what all blocks but the last hold.
    """
    stored = _by_blocks(tensor, block, in_blocks=True)
    return bool(stored[:, -1, :, :, channels - tensor.shape[1] :].any())


def _by_blocks(tensor: Tensor, block: int, *, in_blocks: bool) -> HostArray:
    outputs, inputs, *kernel = tensor.shape
    if in_blocks:
        return tensor.numpy().reshape(outputs // block, inputs // block, *kernel, block, block)
    return tensor.numpy().reshape(outputs // block, inputs, *kernel, block)
