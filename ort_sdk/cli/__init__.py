"""The ``ort-sdk`` command: one module per subcommand."""

from __future__ import annotations

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the words after ``ort-sdk``; those of the process by default.

    Returns:
        An ``ExitCode``; 1 where the host cannot be imported, since a package that it needs is missing.
    """
    try:
        from . import command_line
    except ModuleNotFoundError as error:
        print(f"ort-sdk: error: a package that it needs is missing here ({error}): pip install {error.name}", file=sys.stderr)  # noqa: T201
        return 1
    return command_line.main(arguments)
