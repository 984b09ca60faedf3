"""Allocator, workspace of threads, result pool, weight arena."""
