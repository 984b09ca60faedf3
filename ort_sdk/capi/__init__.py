"""Modules under the names by which clients of onnxruntime import its inner parts."""
