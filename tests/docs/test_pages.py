"""The Python blocks of a page run one after the other, in one process, from the repository's root."""

import re
import subprocess
import sys
import tomllib
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


def test_project_file_names_the_plugin_of_the_page():
    text = (DOCS / "how-to" / "package-a-provider.md").read_text(encoding="utf-8")
    project = tomllib.loads(re.search(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1])["project"]
    host = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ((group, entries),) = project["entry-points"].items()
    module, _, plugin = entries["mine"].partition(":")
    assert group == "ort_sdk.providers"
    assert f"src/{module.split('.')[0]}/" in text
    assert f"class {plugin}(ProviderHooks):" in text
    assert project["dependencies"] == [f"ort-sdk=={host['version'].rpartition('.')[0]}.*"]
    assert project["requires-python"] == host["requires-python"]
