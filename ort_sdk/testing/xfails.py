"""Expected failures: a text file of test names, each with its reason."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["find_file", "read_expected_failures"]

MIN_REASON = 10
"""Characters; a shorter reason explains nothing."""

LINE = re.compile(r"(?P<test>\w+(\[[^\]]*\])?)\s*:\s*(?P<reason>.*)")


def read_expected_failures(path: Path) -> dict[str, str]:
    """Test name → reason. Lines are ``test_name: reason`` or ``test_name[parameter]: reason``; ``#`` begins a comment.

    Raises:
        ValueError: a line is none of these, gives no reason, or repeats a test.
    """
    rows: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        found = LINE.fullmatch(text)
        if found is None or len(found["reason"]) < MIN_REASON:
            raise ValueError(f"{path}:{number}: expected 'test_name[parameter]: reason', got {text!r}")
        if found["test"] in rows:
            raise ValueError(f"{path}:{number}: {found['test']} is listed twice")
        rows[found["test"]] = found["reason"]
    return rows


def find_file(name: str, folder: Path) -> Path:
    """A file by its path relative to ``folder`` or to the nearest folder above it that has it.

    Raises:
        FileNotFoundError: no such file.
    """
    for base in (folder, *folder.parents):
        if (base / name).is_file():
            return base / name
    raise FileNotFoundError(f"no file '{name}' in {folder} or any folder above it")
