"""The tutorials do what they say, from an empty folder."""

import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
SETUPTOOLS = int(importlib.metadata.version("setuptools").partition(".")[0])


def test_there_are_tutorials():
    assert [page.stem for page in PAGES] == ["first-provider", "first-session"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_does_what_it_says(page, tmp_path):
    if SETUPTOOLS < 71 and "pip install .\n" in page.read_text(encoding="utf-8"):
        pytest.skip("this setuptools builds no wheels on its own: install group test")
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    command = [sys.executable, "-P", str(Path(__file__).with_name("run_page.py")), str(page)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
