"""A command once more, in a process with another environment: for what libraries read only when they are loaded."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["run_again"]


def run_again(arguments: argparse.Namespace, environment: Mapping[str, str]) -> int:
    """Run the command of a command line; returns its exit code.

    Args:
        arguments: of the command.
        environment: variables of the process, without the path of this package, which is added.
    """
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-P", "-m", "ort_sdk", *arguments.words]
    return subprocess.run(command, env={**environment, "PYTHONPATH": path}, check=False).returncode  # noqa: S603
