"""Parser of the command line, dispatch to the subcommands, and errors made exit codes."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from types import ModuleType

import ort_sdk

from .exit_codes import ExitCode, error_text, exit_code_of, exit_code_text, is_explained
from .output import own_stdout

__all__ = ["main"]

COMMANDS = {
    "providers": "list installed execution providers, whether they are usable, and why not",
    "run": "run a model once on files: images, arrays, text",
    "inspect": "show a model, or what a stage of session creation makes of it",
    "explain": "show on which provider each node runs, and why not on others",
    "bench": "measure session creation, latency and memory",
    "profile": "show where the time of a run goes",
    "warm": "compile and pack what a model needs, into a folder",
    "convert": "write a model anew, in ORT or ONNX format",
    "kernels": "list the kernels of providers as a Markdown table",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the words after ``ort-sdk``; those of the process by default.

    Returns:
        An ``ExitCode``.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    parsed = _parser().parse_args(words)
    parsed.words = words
    try:
        with own_stdout():
            code = int(_command(parsed.command).run(parsed))
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at exit; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.BROKEN_PIPE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - whatever it is, it becomes a line and an exit code
        if parsed.debug:
            traceback.print_exc()
        hint = "" if is_explained(error) or parsed.debug else "; --debug shows where it was raised"
        print(f"ort-sdk {parsed.command}: error: {error_text(error)}{hint}", file=sys.stderr)  # noqa: T201
        return exit_code_of(error)
    return code


def _command(name: str) -> ModuleType:
    return importlib.import_module(f".commands.{name}", __package__)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ort-sdk",
        description="Run, inspect and measure ONNX models on the installed execution providers.",
        epilog=f"exit codes:\n{exit_code_text()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"ort-sdk {ort_sdk.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", epilog="Exit codes: see ort-sdk --help."
        )
        command.add_argument("--json", action="store_true", help="print JSON on stdout and nothing else there")
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
        _command(name).add_arguments(command)
    return parser
