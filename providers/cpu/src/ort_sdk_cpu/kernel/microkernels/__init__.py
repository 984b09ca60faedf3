"""What compiled kernels of several families share."""
