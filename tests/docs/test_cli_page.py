"""The pages on the command: their examples give what they show, their tables are complete, the kernel table is up to date."""

import argparse
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ort_sdk.cli.command_line import COMMANDS, _parser
from ort_sdk.cli.exit_codes import ExitCode

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SHELL = re.findall(r"^```sh\n(.*?)\n```", PAGE, re.MULTILINE | re.DOTALL)


def run(command, folder=ROOT):
    """Run a command of the page as from the checkout; in another folder, the checkout's examples are found from there."""
    program, *arguments = shlex.split(command)
    assert program == "ort-sdk"
    if folder != ROOT:
        arguments = [str(ROOT / word) if word.startswith("examples/") else word for word in arguments]
    words = [sys.executable, "-P", "-W", "error", "-m", "ort_sdk", *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize(("command", "shown"), CONSOLE, ids=[command for command, _ in CONSOLE])
def test_shown_output(command, shown):
    done = run(command)
    assert done.stdout + done.stderr == shown


@pytest.mark.parametrize("command", [command for command in SHELL if "kernels" not in command])
def test_command_works(command, tmp_path):
    done = run(command, tmp_path if command.startswith(("ort-sdk convert", "ort-sdk warm")) else ROOT)
    assert done.returncode == 0, done.stderr


def test_kernel_table_is_up_to_date():
    (command,) = [command for command in SHELL if "kernels" in command]
    done = run(command)
    assert done.returncode == 0, done.stderr


def test_exit_codes_are_listed():
    section = PAGE.partition("## Exit codes")[2].partition("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)] == [int(code) for code in ExitCode]


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_described(name):
    """Each option in the command's own section or in one on options of several commands."""
    (commands,) = [action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)]
    options = {option for action in commands.choices[name]._actions for option in action.option_strings} - {"-h", "--help"}
    own = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    common = PAGE.partition("\n## Options of every command\n")[2].partition("\n## providers\n")[0]
    if name in {"bench", "explain", "profile", "warm"}:
        own += "".join(PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0] for section in ("run", "bench"))
    assert own
    assert sorted(option for option in options if option not in own + common) == []
