"""ONNX's format: protobuf messages."""
