"""com.microsoft operators that move elements; those ai.onnx has as well are the same kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ort_sdk.api import Array, Compute, HostArray, InvalidArgument, KernelInfo
from ort_sdk.opset.definition import operator
from ort_sdk.opset.generator.ramp import range_
from ort_sdk.opset.tensor.gather import gather_nd
from ort_sdk.opset.tensor.grid_sample import grid_sample
from ort_sdk.opset.tensor.pad import pad
from ort_sdk.opset.tensor.select import trilu
from ort_sdk.opset.tensor.unique import unique

__all__ = ["expand_dims", "is_all_finite", "unfold_tensor"]

MICROSOFT = "com.microsoft"

operator("GatherND", domain=MICROSOFT, moves=True)(gather_nd)
operator("GridSample", domain=MICROSOFT)(grid_sample)
operator("Pad", domain=MICROSOFT, moves=True, shape_inputs=(1,), host_inputs=(1, 2))(pad)
operator("Trilu", domain=MICROSOFT, moves=True, host_inputs=(1,))(trilu)


@operator("Range", domain=MICROSOFT, host_inputs=(0, 1, 2), shape_inputs=(0, 1, 2))
def range_by_one(info: KernelInfo, xp: Any) -> Compute:
    """Range whose delta may be absent, and is 1 then."""
    count = range_(info, xp)
    return lambda start, limit, delta=None: count(start, limit, np.ones_like(start) if delta is None else delta)


@operator("Unique", domain=MICROSOFT, any_type=True, shape_inputs=None, host_inputs=(0,))
def unique_in_order(info: KernelInfo, xp: Any) -> Compute:
    """Distinct elements in order of appearance, which of them each input is, and how often each occurs."""
    names = (*info.outputs, None, None, None)[:3]
    outputs = (names[0], None, names[1], names[2])
    found = unique(dataclasses.replace(info, attributes={"sorted": 0}, outputs=outputs), xp)

    def compute(x: HostArray) -> tuple[Array | None, ...]:
        values, _, inverse, counts = found(x)
        return values, inverse, counts

    return compute


@operator("ExpandDims", domain=MICROSOFT, moves=True, host_inputs=(1,), shape_inputs=(1,), alias=((0, 0),))
def expand_dims(_info: KernelInfo, xp: Any) -> Compute:
    """The input with an axis of size 1 inserted."""
    return lambda x, axis: xp.expand_dims(x, axis=int(axis.reshape(-1)[0]))


@operator("SampleOp", domain=MICROSOFT, any_type=True, alias=((0, 0),))
def sample_op(_info: KernelInfo, _xp: Any) -> Compute:
    """The input itself."""
    return lambda x: x


@operator("UnfoldTensor", domain=MICROSOFT, moves=True)
def unfold_tensor(info: KernelInfo, xp: Any) -> Compute:
    """Slices of ``size`` elements every ``step`` elements along ``dim``, as a new last axis."""
    dim, size, step = info.attribute("dim", -1), info.attribute("size"), info.attribute("step", 1)

    def compute(x: Array) -> Array:
        axis = dim % x.ndim
        if x.shape[axis] < size:
            raise InvalidArgument(f"{info.describe()}: size {size} exceeds dimension {dim} of an input of shape {tuple(x.shape)}")
        count = (x.shape[axis] - size) // step + 1
        lead = (slice(None),) * axis
        taps = [x[(*lead, slice(tap, tap + (count - 1) * step + 1, step), ...)] for tap in range(size)]
        return xp.stack(taps, axis=-1)

    return compute


@operator("TorchEmbedding", domain=MICROSOFT, any_type=True)
def torch_embedding(_info: KernelInfo, xp: Any) -> Compute:
    """Rows of a matrix at the indices; the inputs that steer gradients do not matter."""

    def compute(weight: Array, indices: Array, *_training: Array | None) -> Array:
        return xp.gather(weight, indices, 0)

    return compute


@operator("IsAllFinite", domain=MICROSOFT)
def is_all_finite(info: KernelInfo, xp: Any) -> Compute:
    """Whether no element of any input is infinite or NaN (``isinf_only``, ``isnan_only``: of that kind alone)."""
    if info.attribute("isinf_only", 0):
        is_bad = xp.isinf
    elif info.attribute("isnan_only", 0):
        is_bad = xp.isnan
    else:

        def is_bad(x: Array) -> Array:
            return ~xp.isfinite(x)

    def compute(*inputs: Array) -> Array:
        return ~xp.any(xp.stack([xp.any(is_bad(x)) for x in inputs]))

    return compute
