"""How kernels are called: now, bound to buffers, in a sequence. Knows no operator."""
