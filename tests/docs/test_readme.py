"""What the README shows works as it stands."""

import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def output_of(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_there_is_code():
    assert len(blocks("python")) >= 2
    assert len(blocks("sh")) == 2


@pytest.mark.parametrize("code", blocks("python"), ids=lambda code: code.splitlines()[0])
def test_python_runs(code):
    output_of([sys.executable, "-P", "-W", "error", "-c", code])


def test_example_reads_the_digit():
    code = next(code for code in blocks("python") if "InferenceSession" in code)
    assert output_of([sys.executable, "-P", "-c", code]).strip() == "7"


def test_first_command_reads_the_digit():
    """The part after the installation, with the ``ort-sdk`` of this environment."""
    program, *arguments = shlex.split(blocks("sh")[0].split("&&")[-1])
    found = shutil.which(program, path=sysconfig.get_path("scripts"))
    assert found, f"{program} is not installed: python tools/install.py"
    assert re.search(r"\b7\b", output_of([found, *arguments]))
