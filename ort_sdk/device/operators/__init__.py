"""The operator set on a device: kernels that can be captured, and operators with functions of a device's own."""
