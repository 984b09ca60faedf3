"""Values of arrays: elements in memory, and element-wise expressions that are not computed yet."""
