"""Extents of tasks: the memory that a task accesses at each address, and the check of arrays against it."""
