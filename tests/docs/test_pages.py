"""The Python blocks of a page run one after the other, in one process, from the repository's root."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("explanation", "how-to", "contributing")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(page for folder in FOLDERS for page in (DOCS / folder).glob("*.md"))


def code_of(page):
    return "\n\n".join(BLOCK.findall(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", [page for page in PAGES if code_of(page)], ids=lambda page: page.stem)
def test_python_blocks_run(page):
    command = [sys.executable, "-P", "-W", "error", "-c", code_of(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
