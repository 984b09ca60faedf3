"""Write ``ort_sdk/opset/data/index.txt``: which module of the operator set declares which operator.

Usage: python tools/generate_opset_index.py [--check]
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from pathlib import Path

import ort_sdk.opset
from ort_sdk.opset.definition import DEFINITIONS

TARGET = Path(__file__).parents[1] / "ort_sdk" / "opset" / "data" / "index.txt"


def import_everything() -> None:
    for row in pkgutil.walk_packages(ort_sdk.opset.__path__, "ort_sdk.opset."):
        importlib.import_module(row.name)


def index() -> str:
    import_everything()
    lines = []
    for (domain, op_type), rows in sorted(DEFINITIONS.items()):
        modules = sorted({row.module.removeprefix("ort_sdk.opset.") for row in rows})
        place = "host" if all(row.host_only for row in rows) else "any"
        lines.append(f"{domain}\t{op_type}\t{','.join(modules)}\t{place}\n")
    return "".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail if the file differs, write nothing")
    text = index()
    if parser.parse_args().check:
        if TARGET.read_text(encoding="utf-8") != text:
            print(f"{TARGET} is out of date: run this script without --check", file=sys.stderr)
            return 1
        return 0
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
