"""Model formats, read and written: ``onnx`` and ``ort``, each with its ``reader`` and ``writer``, and ``files`` with weights."""
