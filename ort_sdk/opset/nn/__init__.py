"""Neural network operators: convolution, pooling, normalization, dropout, recurrence and losses."""

from . import (
    batch_norm,
    conv,
    conv_transpose,
    deform_conv,
    dropout,
    global_pool,
    loss,
    lrn,
    normalization,
    pool,
    recurrent,
    unpool,
)

__all__ = [
    "batch_norm",
    "conv",
    "conv_transpose",
    "deform_conv",
    "dropout",
    "global_pool",
    "loss",
    "lrn",
    "normalization",
    "pool",
    "recurrent",
    "unpool",
]
