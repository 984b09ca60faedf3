"""Machine code: compiled from Python functions through numba and LLVM, cached, checked and called. Knows no operator."""
