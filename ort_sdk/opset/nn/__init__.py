"""Neural network operators: convolution, pooling, normalization, dropout, recurrence and losses."""
