"""ReverseSequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator

__all__ = ["reverse_sequence"]


@operator("ReverseSequence", moves=True, host_inputs=(1,))
def reverse_sequence(info: KernelInfo, xp: Any) -> Compute:
    """The first ``sequence_lens[batch]`` elements along ``time_axis`` backwards, the rest as they are."""
    time_axis, batch_axis = info.attribute("time_axis", 0), info.attribute("batch_axis", 1)
    if {time_axis, batch_axis} != {0, 1}:
        raise InvalidArgument(f"{info.describe()}: time_axis {time_axis} and batch_axis {batch_axis} must be 0 and 1, or 1 and 0")

    def compute(x: Array, sequence_lens: HostArray) -> Array:
        times, batches = x.shape[time_axis], x.shape[batch_axis]
        if sequence_lens.shape != (batches,) or (batches and not 0 <= sequence_lens.min() <= sequence_lens.max() <= times):
            raise InvalidArgument(
                f"{info.describe()}: sequence_lens {sequence_lens.tolist()} must hold {batches} lengths within [0, {times}]"
            )
        positions = _source_rows(sequence_lens, times, batches, time_axis)
        rows = xp.reshape(x, (times * batches, *x.shape[2:]))
        return xp.reshape(xp.gather(rows, xp.from_host(positions), 0), x.shape)

    return compute


def _source_rows(lengths: HostArray, times: int, batches: int, time_axis: int) -> HostArray:
    """Row each row is read from, in an array whose two leading axes are seen as one."""
    time = np.arange(times).reshape(times, 1)
    source = np.where(time < lengths, lengths - 1 - time, time)
    batch = np.arange(batches)
    return (source * batches + batch if time_axis == 0 else (batch * times + source).T).reshape(-1)
