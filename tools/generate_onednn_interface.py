"""Write the CPU provider's ``onednn/interface.py``: oneDNN's declarations as cffi reads them without parsing C.

Usage: python tools/generate_onednn_interface.py [--check]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import cffi
from ort_sdk_cpu.onednn.declarations import C_DECLARATIONS

TARGET = Path(__file__).parents[1] / "providers" / "cpu" / "src" / "ort_sdk_cpu" / "onednn" / "interface.py"
HEAD = '''# ruff: noqa: E501, Q000
# fmt: off
"""OneDNN's declarations in cffi's own words. Written by tools/generate_onednn_interface.py from declarations.py."""

import _cffi_backend

__all__ = ["ffi"]
'''


def interface() -> str:
    builder = cffi.FFI()
    builder.cdef(C_DECLARATIONS)
    builder.set_source("ort_sdk_cpu.onednn.interface", None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "interface.py")
        builder.emit_python_code(str(path))
        text = path.read_text(encoding="ascii")
    return HEAD + text.partition("import _cffi_backend\n")[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the file differs, write nothing")
    text = interface()
    if parser.parse_args().check:
        if TARGET.read_text(encoding="ascii") != text:
            print(f"{TARGET} is out of date: run this script without --check", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text, encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
