"""ONNX's messages, written by the onnx package, and their external data."""
