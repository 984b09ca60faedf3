"""The sources stay small and explained: sizes of files, folders and functions, and comments in compiled code."""

import ast
import statistics
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROVIDER = ROOT / "providers/cpu/src/ort_sdk_cpu"
MOST_LINES, MOST_FILES, MEDIAN_FUNCTION, COMMENTS_PER_HUNDRED = 500, 16, 8, 4
"""Of a file; in a folder, with its ``__init__``; lines of the function in the middle; comment lines for 100 lines of code."""
GENERATED = {"onnx_signatures.py", "interface.py"}


def sources(folder):
    return [path for path in sorted(folder.rglob("*.py")) if path.name not in GENERATED and "build" not in path.parts]


ALL = sources(ROOT / "ort_sdk") + [path for path in sources(ROOT / "providers") if "src" in path.parts]


def test_files_are_short():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in ALL}
    assert not {path: lines for path, lines in lengths.items() if lines > MOST_LINES}


def test_folders_have_few_files():
    """But for catalogues: one file for each pass, each family of operators, or each part of the contract."""
    of_one_kind = [ROOT / "ort_sdk" / name for name in ("api", "graph", "opset", "optimizer", "testing")]
    files = [path for path in ALL if not any(path.is_relative_to(folder) for folder in of_one_kind)]
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in files)
    assert not {folder: count for folder, count in counts.items() if count > MOST_FILES}


@pytest.mark.parametrize("folder", [ROOT / "ort_sdk", PROVIDER], ids=lambda folder: folder.name)
def test_functions_are_short(folder):
    lengths = [
        node.end_lineno - node.body[0].lineno + 1
        for path in sources(folder)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    ]
    assert statistics.median(lengths) <= MEDIAN_FUNCTION


def explained():
    """Code whose reasons cannot be seen from it: tasks, micro-kernels and choices of algorithms."""
    return [path for path in sources(PROVIDER) if path.parent.name in {"compiled", "microkernels"} or path.name == "select.py"]


@pytest.mark.parametrize("family", sorted({path.relative_to(PROVIDER).parts[0] for path in explained()}))
def test_compiled_code_says_why(family):
    comments = code = 0
    for path in explained():
        if path.relative_to(PROVIDER).parts[0] == family:
            lines = [line.strip() for line in path.read_text().splitlines()]
            comments += sum(line.startswith("#") and len(line.split()) > 3 for line in lines)
            code += sum(bool(line) and not line.startswith("#") for line in lines)
    assert comments >= COMMENTS_PER_HUNDRED * code / 100, f"{comments} lines of comments for {code} of code"
