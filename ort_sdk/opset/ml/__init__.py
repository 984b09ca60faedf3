"""Operators of the ml family: ai.onnx.ml."""
