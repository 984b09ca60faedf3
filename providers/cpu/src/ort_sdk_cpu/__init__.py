"""The CPU execution provider of ort_sdk: ONNX's operators over NumPy."""
