"""The OpenCL execution provider of ort_sdk."""
