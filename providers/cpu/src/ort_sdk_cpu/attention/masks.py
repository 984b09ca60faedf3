"""Masks of ONNX Runtime's attention as score bias (additive masks): by compiled tasks, for arrays that stay."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.task import TaskCall

from .arguments.lengths import MODULE, KeyCountBias, MaskBias

__all__ = ["mask_bias_of", "mask_bias_task"]

MAX_BIAS_ELEMENTS = 1 << 18
"""Elements of a score bias up to which a call has memory of its own: a megabyte."""
_INT32, _FLOAT = np.dtype(np.int32), np.dtype(np.float32)


def mask_bias_task(mask: HostArray, numbers: HostArray, filter_value: float) -> TaskCall:
    """Writes 0 where a mask, int32, is above 0, and ``filter_value`` elsewhere; the arrays are not kept."""
    return TaskCall(MODULE, "mask_bias", MaskBias(mask, mask.size, numbers, filter_value))


def mask_bias_of(mask: HostArray, shape: tuple[int, int, int], filter_value: float) -> tuple[HostArray, TaskCall] | None:
    """The score bias of a mask, and the task that writes it, which does not keep the arrays.

    Args:
        mask: (batch, keys) or (batch, sequence, keys), above 0 where keys count; or (batch,), the ends of those that do.
        shape: (batch, sequence, keys).
        filter_value: what hidden keys get.

    Returns:
        None for other masks, such as (batch, 1), which hides nothing, and for those of many numbers.
    """
    batch, length, keys = shape
    if mask.dtype != _INT32 or not mask.flags.c_contiguous or (mask.ndim == 2 and mask.shape[1] == 1):
        return None
    if mask.shape == (batch,):
        numbers = np.empty((batch, 1, 1, keys), _FLOAT)
        arguments = KeyCountBias(mask, batch, keys, numbers, filter_value)
        return None if numbers.size > MAX_BIAS_ELEMENTS else (numbers, TaskCall(MODULE, "key_count_bias", arguments))
    if mask.shape not in {(batch, keys), (batch, length, keys)} or mask.size > MAX_BIAS_ELEMENTS:
        return None
    numbers = np.empty((batch, 1, length if mask.ndim > 2 else 1, keys), _FLOAT)
    return numbers, mask_bias_task(mask, numbers, filter_value)
