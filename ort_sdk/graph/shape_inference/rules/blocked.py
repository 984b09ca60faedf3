"""ONNX Runtime's operators on blocks of channels (``com.microsoft.nchwc``), whose values have ONNX's shapes (N, C, H, W).

C is rounded up to whole blocks, of a size that is not in the model.
"""

from __future__ import annotations

from ort_sdk.api import Shape
from ort_sdk.graph.shape_inference.node_call import NodeCall, shape_rule

from .convolution import conv, global_pool, pool
from .resize import resize

DOMAIN = "com.microsoft.nchwc"
_LARGEST_BLOCK = 16

shape_rule("Conv", domain=DOMAIN)(conv)
shape_rule("Upsample", domain=DOMAIN)(resize)
shape_rule("GlobalAveragePool", "GlobalMaxPool", domain=DOMAIN)(global_pool)


@shape_rule("AveragePool", "MaxPool", domain=DOMAIN)
def blocked_pool(call: NodeCall) -> list[Shape | None]:
    """(N, C, H, W)."""
    return pool(call)[:1]


@shape_rule("ReorderInput", domain=DOMAIN)
def reorder_input(call: NodeCall) -> list[Shape | None]:
    """(N, C, H, W); C is only known if it is whole blocks of any size."""
    x = call.shape(0)
    if x is None or len(x) != 4:
        return [None]
    batch, channels, *plane = (x[0], x[3], *x[1:3]) if call.attribute("channels_last", 0) else x
    is_whole = isinstance(channels, int) and channels % _LARGEST_BLOCK == 0
    return [(batch, channels if is_whole else None, *plane)]


@shape_rule("ReorderOutput", domain=DOMAIN)
def reorder_output(call: NodeCall) -> list[Shape | None]:
    """(N, C, H, W), or (N, H, W, C), without what fills the last block."""
    x = call.shape(0)
    if x is None or len(x) != 4:
        return [None]
    channels, plane = call.attribute("channels") or None, x[2:]
    return [(x[0], *plane, channels) if call.attribute("channels_last", 0) else (x[0], channels, *plane)]
