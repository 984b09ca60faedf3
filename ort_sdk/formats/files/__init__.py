"""Files with weights: maps, ranges of them as tensors, external data, and files that are being written."""
