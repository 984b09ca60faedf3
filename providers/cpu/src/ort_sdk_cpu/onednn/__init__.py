"""oneDNN's primitives for kernels: descriptors of memory, attributes, primitives checked for how they are made, executions.

Loaded when the first primitive is asked for. Arrays are NumPy's; a layout is an array's shape and strides, or oneDNN's own for
packed weights.
"""
