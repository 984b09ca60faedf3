"""Memory of the provider: allocator, per-thread workspace, pool of results, arena of packed weights, strides."""
