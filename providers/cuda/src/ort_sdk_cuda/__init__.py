"""The CUDA execution provider of ort_sdk: a launcher of the device layer's kernels on NVIDIA GPUs."""
