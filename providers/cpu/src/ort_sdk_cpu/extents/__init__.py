"""What compiled tasks touch: a declaration for each, and the check of arrays against it. Free of numba."""
