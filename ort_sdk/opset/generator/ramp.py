"""Range and EyeLike."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.sizes import require_size

__all__: list[str] = []


@operator("Range", host_inputs=(0, 1, 2), shape_inputs=(0, 1, 2))
def range_(info: KernelInfo, xp: Any) -> Compute:
    """Start, start + delta, … up to limit, which is left out."""

    def compute(start: HostArray, limit: HostArray, delta: HostArray) -> Array:
        step = delta.item()
        if not step:
            raise InvalidArgument(f"{info.describe()}: delta must not be 0")
        span = limit.item() - start.item()
        if not math.isfinite(span) or not math.isfinite(step):
            raise InvalidArgument(
                f"{info.describe()}: {start.item()} to {limit.item()} by {step} is no range; give finite numbers"
            )
        if start.dtype.kind in "iu":
            require_size(info.describe(), (max(-(-span // step), 0),), start.itemsize)
            return xp.from_host(np.arange(start.item(), limit.item(), step, dtype=start.dtype))
        steps = (limit.reshape(()) - start.reshape(())).item() / step
        if not math.isfinite(steps):
            raise InvalidArgument(f"{info.describe()}: {start.item()} to {limit.item()} by {step} has too many elements")
        (count,) = require_size(info.describe(), (max(math.ceil(steps), 0),), start.itemsize)
        return xp.from_host(start.reshape(()) + np.arange(count, dtype=start.dtype) * delta.reshape(()))

    return compute


@operator("EyeLike", any_type=True, contents_from_shapes=True)
def eye_like(info: KernelInfo, xp: Any) -> Compute:
    """Ones on diagonal ``k`` of a zero matrix of the input's shape."""
    diagonal, dtype, eye = info.attribute("k", 0), xp.dtype(info.output_element_type(0)), xp.eye

    def compute(like: Array) -> Array:
        if len(like.shape) != 2:
            raise InvalidArgument(f"{info.describe()}: the input must be a matrix; its shape is {tuple(like.shape)}")
        return eye(like.shape[0], like.shape[1], k=diagonal, dtype=dtype)

    return compute
