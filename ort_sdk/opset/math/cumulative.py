"""CumSum and CumProd."""

from __future__ import annotations

from typing import Any

from ort_sdk.api import Array, Compute, HostArray, KernelInfo
from ort_sdk.opset.axes import normalized_axis
from ort_sdk.opset.definition import operator

__all__: list[str] = []


def _cumulative(info: KernelInfo, xp: Any, function: Compute) -> Compute:
    """Running totals along the axis input; ``exclusive`` leaves the element itself out, ``reverse`` runs from the end."""
    exclusive, reverse = bool(info.attribute("exclusive", 0)), bool(info.attribute("reverse", 0))
    flip = xp.flip

    def compute(x: Array, axis: HostArray) -> Array:
        along = normalized_axis(int(axis.reshape(())), len(x.shape), info)
        ordered = flip(x, axis=along) if reverse else x
        result = function(ordered, axis=along, dtype=x.dtype, include_initial=exclusive)
        if exclusive:
            result = result[(*((slice(None),) * along), slice(0, -1), ...)]
        return flip(result, axis=along) if reverse else result

    return compute


@operator("CumSum", host_inputs=(1,))
def cum_sum(info: KernelInfo, xp: Any) -> Compute:
    """Running sums."""
    return _cumulative(info, xp, xp.cumulative_sum)


@operator("CumProd", host_inputs=(1,))
def cum_prod(info: KernelInfo, xp: Any) -> Compute:
    """Running products."""
    return _cumulative(info, xp, xp.cumulative_prod)
