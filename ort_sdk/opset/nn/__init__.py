"""Neural network operators: convolution, pooling, normalization, dropout, recurrence and losses."""

from . import conv, conv_transpose, global_pool, pool, unpool

__all__ = ["conv", "conv_transpose", "global_pool", "pool", "unpool"]
