"""The default suite between guard pages, on either side."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guard_pages.requirements import needs_guard_pages

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
@needs_guard_pages
@pytest.mark.parametrize("side", ["back", "front"])
def test_the_whole_suite(side):
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "ORT_SDK_GUARD"))}
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", "-p", "guard_pages"]
    done = subprocess.run(
        [*command, "--guard-pages", side],
        cwd=HERE.parents[1],
        env=environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5000:]
