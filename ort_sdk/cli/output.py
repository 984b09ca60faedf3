"""What the commands print: JSON, tables, and progress for a person who waits."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from ort_sdk.api.optional_packages import is_installed

__all__ = [
    "own_stdout",
    "print_json",
    "print_notice",
    "print_table",
    "print_text",
    "progress",
    "shape_text",
    "stdout",
    "table_lines",
]


_own: list[TextIO] = []
"""The standard output of the command that runs."""


def stdout() -> TextIO:
    """Standard output as commands have it to themselves."""
    return _own[-1] if _own else sys.stdout


@contextlib.contextmanager
def own_stdout() -> Iterator[None]:
    """Keep standard output for what the command prints: what others print meanwhile, providers for one, goes to stderr."""
    _own.append(sys.stdout)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        _own.pop()


def print_text(text: str = "") -> None:
    """A line on stdout."""
    stdout().write(f"{text}\n")


def print_notice(text: str) -> None:
    """A line on stderr, for the person who reads it: no part of the result."""
    sys.stderr.write(f"ort-sdk: {text}\n")


def print_json(value: Any) -> None:
    """A value as JSON on stdout. Numbers that JSON lacks become the texts ``NaN``, ``Infinity`` and ``-Infinity``."""
    print_text(json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[int] = ()) -> None:
    """A table on stdout: drawn to the width of a terminal if rich is installed, aligned text elsewhere.

    Args:
        columns: headings.
        rows: cells.
        right: columns that are flush right.
    """
    if not (stdout().isatty() and is_installed("rich")):
        print_text("\n".join(table_lines(columns, rows, right=right)))
        return
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*[Text(str(cell)) for cell in row])
    Console(file=stdout()).print(table)


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, right: Sequence[int] = ()) -> list[str]:
    """The rows as aligned lines of text, below their headings. Arguments as for ``print_table``."""
    cells = [list(columns), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in cells) for index in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if index in right else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


@contextlib.contextmanager
def progress(text: str) -> Any:
    """A spinner on stderr while the body runs, if a person is watching and rich is installed."""
    if not (sys.stderr.isatty() and is_installed("rich")):
        yield
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(file=sys.stderr).status(escape(text)):
        yield


def shape_text(shape: Sequence[Any] | None) -> str:
    """Dimensions as ``[batch, 3, ?]``; ``?`` for unknown ones."""
    return "[...]" if shape is None else f"[{', '.join('?' if dim is None else str(dim) for dim in shape)}]"
