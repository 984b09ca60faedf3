"""ONNX's messages, read without protobuf."""
