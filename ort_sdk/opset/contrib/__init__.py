"""Operators of the com.microsoft domain, and those ONNX Runtime adds to ai.onnx."""
