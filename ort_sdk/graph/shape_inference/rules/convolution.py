"""Convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence

from ort_sdk.api import Dimension, Shape
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule


def _per_axis(call: NodeCall, name: str, rank: int, default: int) -> Sequence[int]:
    return call.attribute(name) or (default,) * rank


def _windows(call: NodeCall, spatial: Shape, kernel: Shape) -> list[Dimension]:
    """Number of window positions on each spatial axis."""
    rank = len(spatial)
    strides = _per_axis(call, "strides", rank, 1)
    dilations = _per_axis(call, "dilations", rank, 1)
    pads = _per_axis(call, "pads", 2 * rank, 0)
    auto_pad = call.attribute("auto_pad", "NOTSET")
    if auto_pad == "VALID":
        pads = (0,) * (2 * rank)
    ceil_mode = bool(call.attribute("ceil_mode", 0))
    sizes: list[Dimension] = []
    for axis, (size, taps, stride) in enumerate(zip(spatial, kernel, strides, strict=True)):
        if not isinstance(size, int) or not isinstance(taps, int):
            is_kept = isinstance(size, str) and stride == 1 and auto_pad.startswith("SAME")
            sizes.append(size if is_kept else None)
        elif auto_pad.startswith("SAME"):
            sizes.append(-(-size // stride))
        else:
            begin, span = pads[axis], (taps - 1) * dilations[axis] + 1
            room = size + begin + pads[rank + axis] - span
            # What does not fit is refused in a run; of pools, some does.
            sizes.append(_positions(size + begin, room, stride, ceil_mode) if room >= 0 else None)
    return sizes


def _positions(begun: int, room: int, stride: int, ceil_mode: bool) -> int:
    positions = room // stride + 1
    starts_inside = positions * stride < begun
    return positions + 1 if ceil_mode and room % stride and starts_inside else positions


def _convolved(call: NodeCall, x: Shape | None, weight: Shape | None) -> Shape | None:
    if x is None:
        return None if weight is None else (None,) * len(weight)
    if weight is not None:
        return (x[0], weight[0], *_windows(call, x[2:], weight[2:]))
    kernel = call.attribute("kernel_shape")
    return (x[0], None, *(_windows(call, x[2:], tuple(kernel)) if kernel else (None,) * (len(x) - 2)))


@shape_rule("Conv", "ConvInteger")
@shape_rule("FusedConv", domain="com.microsoft")
def conv(call: NodeCall) -> list[Shape | None]:
    """(N, M, *spatial)."""
    return [_convolved(call, call.shape(0), call.shape(1))]


@shape_rule("QLinearConv")
def qlinear_conv(call: NodeCall) -> list[Shape | None]:
    """(N, M, *spatial)."""
    return [_convolved(call, call.shape(0), call.shape(3))]


def _channels_first(shape: Shape) -> Shape:
    return (shape[0], shape[-1], *shape[1:-1])


def _channels_last(shape: Shape) -> Shape:
    return (shape[0], *shape[2:], shape[1])


@shape_rule("QLinearConv", domain="com.microsoft")
def channels_last_qlinear_conv(call: NodeCall) -> list[Shape | None]:
    """Channels last if the node says so."""
    x = call.shape(0)
    if not call.attribute("channels_last", 0) or x is None:
        return qlinear_conv(call)
    found = _convolved(call, _channels_first(x), call.shape(3))
    return [None if found is None else _channels_last(found)]


@shape_rule("NhwcConv", "NhwcFusedConv", domain="com.microsoft")
def nhwc_conv(call: NodeCall) -> list[Shape | None]:
    """Channels last; the weight as Conv's."""
    x = call.shape(0)
    found = None if x is None else _convolved(call, _channels_first(x), call.shape(1))
    return [None if found is None else _channels_last(found)]


@shape_rule("AveragePool", "LpPool", "MaxPool")
def pool(call: NodeCall) -> list[Shape | None]:
    """(N, C, *spatial), for values and indices."""
    x = call.shape(0)
    found = None if x is None else (*x[:2], *_windows(call, x[2:], tuple(call.attribute("kernel_shape"))))
    return [found, found]


@shape_rule("NhwcMaxPool", "QLinearAveragePool", domain="com.microsoft")
def pool_of_either_layout(call: NodeCall) -> list[Shape | None]:
    """Channels last for NhwcMaxPool, and where the node says so."""
    if call.node.op_type == "QLinearAveragePool" and not call.attribute("channels_last", 0):
        return pool(call)[:1]
    x = call.shape(0)
    if x is None:
        return [None]
    return [(x[0], *_windows(call, x[1:-1], tuple(call.attribute("kernel_shape"))), x[-1])]


@shape_rule("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def global_pool(call: NodeCall) -> list[Shape | None]:
    """(N, C, 1, …)."""
    x = call.shape(0)
    return [None if x is None else (*x[:2], *(1,) * (len(x) - 2))]


@shape_rule("QLinearGlobalAveragePool", domain="com.microsoft")
def qlinear_global_pool(call: NodeCall) -> list[Shape | None]:
    """Channels last if the node says so."""
    x = call.shape(0)
    if x is None or not call.attribute("channels_last", 0):
        return global_pool(call)
    return [(x[0], *(1,) * (len(x) - 2), x[-1])]


@shape_rule("ConvTranspose")
def conv_transpose(call: NodeCall) -> list[Shape | None]:
    """(N, M, *spatial)."""
    x, weight = call.shape(0), call.shape(1)
    if x is None or weight is None:
        return [None]
    group = call.attribute("group", 1)
    channels = weight[1] * group if isinstance(weight[1], int) else None
    asked = call.attribute("output_shape")
    spatial: Sequence[Dimension] = asked[-len(x[2:]) :] if asked else _transposed_sizes(call, x[2:], weight[2:])
    return [(x[0], channels, *spatial)]


def _transposed_sizes(call: NodeCall, spatial: Shape, kernel: Shape) -> list[Dimension]:
    rank = len(spatial)
    strides = _per_axis(call, "strides", rank, 1)
    dilations = _per_axis(call, "dilations", rank, 1)
    extra = _per_axis(call, "output_padding", rank, 0)
    auto_pad = call.attribute("auto_pad", "NOTSET")
    pads = _per_axis(call, "pads", 2 * rank, 0) if auto_pad != "VALID" else (0,) * (2 * rank)
    sizes: list[Dimension] = []
    for axis, (size, taps, stride) in enumerate(zip(spatial, kernel, strides, strict=True)):
        if not isinstance(size, int) or not isinstance(taps, int):
            sizes.append(None)
        elif auto_pad.startswith("SAME"):
            sizes.append(size * stride)
        else:
            whole = stride * (size - 1) + extra[axis] + (taps - 1) * dilations[axis] + 1
            sizes.append(whole - pads[axis] - pads[rank + axis])
    return sizes


@shape_rule("RoiAlign")
def roi_align(call: NodeCall) -> list[Shape | None]:
    """(regions, C, height, width)."""
    x, regions = call.shape(0), call.shape(1)
    count = None if regions is None else regions[0]
    channels = None if x is None else x[1]
    return [(count, channels, call.attribute("output_height", 1), call.attribute("output_width", 1))]


@shape_rule("MaxRoiPool")
def max_roi_pool(call: NodeCall) -> list[Shape | None]:
    """(regions, C, *pooled_shape)."""
    x, regions = call.shape(0), call.shape(1)
    count = None if regions is None else regions[0]
    return [(count, None if x is None else x[1], *call.attribute("pooled_shape"))]


@shape_rule("GridSample")
@shape_rule("GridSample", domain="com.microsoft")
def grid_sample(call: NodeCall) -> list[Shape | None]:
    """(N, C, *grid)."""
    x, grid = call.shape(0), call.shape(1)
    return [None if x is None or grid is None else (*x[:2], *grid[1:-1])]
