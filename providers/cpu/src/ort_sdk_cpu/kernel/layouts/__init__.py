"""Where elements are in memory: layouts as values, calls on arrays of any layout, and kernels that choose their output's."""
