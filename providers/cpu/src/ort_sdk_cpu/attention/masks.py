"""Masks of ONNX Runtime's attention as numbers to add to scores: by compiled tasks, for arrays that stay."""

from __future__ import annotations

import numpy as np

from ort_sdk.api import HostArray
from ort_sdk_cpu.jit.task import TaskCall

from .arguments.lengths import MODULE, KeyCountBias, MaskBias

__all__ = ["hidden_keys", "task_of_mask"]

MOST_NUMBERS = 1 << 18
"""Numbers for which a call has memory of its own."""
_INT32, _FLOAT = np.dtype(np.int32), np.dtype(np.float32)


def task_of_mask(mask: HostArray, numbers: HostArray, filter_value: float) -> TaskCall:
    """What writes 0 where a mask, int32, is above 0, and ``filter_value`` elsewhere; the arrays are not kept."""
    return TaskCall(MODULE, "mask_bias", MaskBias(mask, mask.size, numbers, filter_value))


def hidden_keys(mask: HostArray, shape: tuple[int, int, int], filter_value: float) -> tuple[HostArray, TaskCall] | None:
    """The numbers that a mask stands for, and the task that writes them, which does not keep the arrays.

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
        return None if numbers.size > MOST_NUMBERS else (numbers, TaskCall(MODULE, "key_count_bias", arguments))
    if mask.shape not in {(batch, keys), (batch, length, keys)} or mask.size > MOST_NUMBERS:
        return None
    numbers = np.empty((batch, 1, length if mask.ndim > 2 else 1, keys), _FLOAT)
    return numbers, task_of_mask(mask, numbers, filter_value)
