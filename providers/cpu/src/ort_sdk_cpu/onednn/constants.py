"""Numbers of oneDNN 3's C interface, by its own names."""

from __future__ import annotations

import enum

import numpy as np

__all__ = [
    "DATA_TYPES",
    "Algorithm",
    "Argument",
    "Query",
    "binary_post_op",
    "scales_of",
    "zero_points_of",
]

CPU_ENGINE = 1
IN_ORDER_STREAM = 1
FORWARD_INFERENCE = 96
ANY_LAYOUT = 1
USER_SCRATCHPAD = 1
UNIMPLEMENTED = 3

STATUS = {1: "out of memory", 2: "invalid arguments", 3: "not implemented", 4: "last implementation reached", 5: "runtime error"}

DATA_TYPES: dict[np.dtype, int] = {
    np.dtype(np.float16): 1,
    np.dtype(np.float32): 3,
    np.dtype(np.int32): 4,
    np.dtype(np.int8): 5,
    np.dtype(np.uint8): 6,
}
"""NumPy's type → ``dnnl_data_type_t``."""


class Argument(enum.IntEnum):
    """Arguments of an execution (``DNNL_ARG_*``)."""

    SRC = 1
    SRC_1 = 2
    DST = 17
    WEIGHTS = 33
    BIAS = 41
    SCALE = 51
    SHIFT = 52
    SCRATCHPAD = 80


class Query(enum.IntEnum):
    """What a primitive descriptor is asked for (``dnnl_query_t``)."""

    IMPLEMENTATION = 8
    SRC = 129
    WEIGHTS = 131
    DST = 133
    SCRATCHPAD = 136


class Algorithm(enum.IntEnum):
    """``dnnl_alg_kind_t``."""

    CONVOLUTION_DIRECT = 0x1
    CONVOLUTION_WINOGRAD = 0x2
    CONVOLUTION_AUTO = 0x3
    DECONVOLUTION_DIRECT = 0xA
    RELU = 0x20
    TANH = 0x21
    ELU = 0x22
    ABS = 0x24
    SQRT = 0x25
    LINEAR = 0x26
    SOFT_RELU = 0x27
    HARD_SIGMOID = 0x28
    LOGISTIC = 0x29
    EXP = 0x2A
    GELU_TANH = 0x2B
    SWISH = 0x2C
    CLIP = 0x2E
    CLIP_V2 = 0x2F
    GELU_ERF = 0x31
    MISH = 0x33
    HARD_SWISH = 0x34
    POOLING_MAX = 0x1FF
    POOLING_AVERAGE_INCLUDE_PADDING = 0x2FF
    POOLING_AVERAGE_EXCLUDE_PADDING = 0x3FF
    BINARY_ADD = 0x1FFF0
    BINARY_MUL = 0x1FFF1
    BINARY_MAX = 0x1FFF2
    BINARY_MIN = 0x1FFF3
    BINARY_DIV = 0x1FFF4
    BINARY_SUB = 0x1FFF5


def scales_of(argument: int) -> int:
    """Argument that holds the scales of another: float32."""
    return 4096 | argument


def zero_points_of(argument: int) -> int:
    """Argument that holds the zero points of another: int32."""
    return 8192 | argument


def binary_post_op(position: int) -> int:
    """Argument that holds the second operand of the binary post-op at a position of the chain."""
    return 32768 * (position + 1) | Argument.SRC_1
