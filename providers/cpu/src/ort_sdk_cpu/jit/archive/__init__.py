"""Archives of compiled kernels: what names their entries, how these are found, and how archives are built."""
