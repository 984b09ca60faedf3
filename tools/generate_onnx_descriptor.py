"""Write ``ort_sdk/loader/data/onnx.desc``, the serialized descriptor of ONNX's protobuf messages.

Usage: python tools/generate_onnx_descriptor.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from google.protobuf import descriptor_pb2
from onnx import onnx_ml_pb2

TARGET = Path(__file__).parents[1] / "ort_sdk" / "loader" / "data" / "onnx.desc"


def descriptor() -> bytes:
    file = descriptor_pb2.FileDescriptorProto.FromString(onnx_ml_pb2.DESCRIPTOR.serialized_pb)
    return file.SerializeToString(deterministic=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the file differs, write nothing")
    if parser.parse_args().check:
        if TARGET.read_bytes() != descriptor():
            print(f"{TARGET} is out of date: run this script without --check", file=sys.stderr)
            return 1
        return 0
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_bytes(descriptor())
    return 0


if __name__ == "__main__":
    sys.exit(main())
