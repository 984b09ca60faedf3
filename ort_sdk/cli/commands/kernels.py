"""``ort-sdk kernels``: the kernels of providers, for the reference."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from pathlib import Path

from ort_sdk.api import InvalidArgument, KernelRegistry
from ort_sdk.cli.exit_codes import ExitCode, error_text, is_explained
from ort_sdk.cli.output import print_json, print_text, progress

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument(
        "--provider",
        action="append",
        default=[],
        metavar="NAME",
        help="only this provider; repeat for others (default: all usable)",
    )
    parser.add_argument("--output", metavar="FILE", help="write a Markdown page to FILE instead of printing it")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if FILE is not what would be written")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; ``FAILURE`` if the page differs from what it is checked against, ``PROVIDER`` if one is left out."""
    if arguments.check and not arguments.output:
        raise InvalidArgument("--check needs --output FILE, the page to compare with")
    with progress("asking the providers for their kernels"):
        registries, failures = _registries(arguments.provider)
    for text in failures:
        sys.stderr.write(f"ort-sdk kernels: left out: {text}\n")
    return _report(arguments, registries) or (ExitCode.PROVIDER if failures else ExitCode.OK)


def _report(arguments: argparse.Namespace, registries: list[KernelRegistry]) -> ExitCode:
    from ort_sdk.cli.models.kernel_table import kernel_page, kernel_rows

    rows = kernel_rows(registries)
    names = [registry.provider_name for registry in registries]
    if arguments.json:
        print_json([dataclasses.asdict(row) for row in rows])
        return ExitCode.OK
    page = kernel_page(rows, names, _command(names, arguments.output))
    if not arguments.output:
        print_text(page.rstrip("\n"))
        return ExitCode.OK
    path = Path(arguments.output)
    if not arguments.check:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
        return ExitCode.OK
    if path.read_text(encoding="utf-8") == page:
        return ExitCode.OK
    sys.stderr.write(f"ort-sdk kernels: {str(path)!r} is not up to date; write it again: {_command(names, arguments.output)}\n")
    return ExitCode.FAILURE


def _registries(names: list[str]) -> tuple[list[KernelRegistry], list[str]]:
    """Those of the named providers, or of all that can be asked, and why others cannot."""
    from ort_sdk.plugins import plugin_manager
    from ort_sdk.session.environment import environment

    manager = plugin_manager()
    wanted = [manager.handle(name).name for name in names] or [handle.name for handle in manager.available_providers()]
    registries, failures = [], []
    for name in dict.fromkeys(wanted):
        try:
            provider = environment().open_providers([name], None, {})[0]
        except Exception as error:
            if names or not is_explained(error):
                raise
            failures.append(error_text(error))
            continue
        if provider.registry is not None:
            registries.append(provider.registry)
    return registries, failures


def _command(names: list[str], output: str | None) -> str:
    words = [word for name in names for word in ("--provider", name)]
    return shlex.join(["ort-sdk", "kernels", *words, *(["--output", output] if output else [])])
