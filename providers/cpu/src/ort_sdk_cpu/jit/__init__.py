"""From a Python function to machine code: LLVM, cache, calls. Knows no operator."""
