"""``ort-sdk warm``: everything that a model needs compiled and packed, into a folder, for images and read-only places."""

from __future__ import annotations

import argparse
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ort_sdk.api import InvalidArgument
from ort_sdk.api.cache_folder import CACHE_VARIABLE
from ort_sdk.cli.arguments import add_model_argument, add_provider_arguments, provider_entries
from ort_sdk.cli.exit_codes import ExitCode
from ort_sdk.cli.inputs.measured_model import add_feed_arguments, measured_feeds
from ort_sdk.cli.output import print_json, print_table, progress
from ort_sdk.cli.own_process import run_again
from ort_sdk.session.options.compilation import COMPILATION_VARIABLE

__all__ = ["add_arguments", "run"]

WARMING = "ORT_SDK_WARMING"
"""Environment variable of the process that fills the folder: the folder."""

MOST_SECONDS, MOST_RUNS = 60.0, 10_000
"""Bounds of the runs of one set of shapes: what runs for a twentieth of a second altogether gets compiled chains."""

_READ = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH
_ENTER = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    add_model_argument(parser)
    parser.add_argument("--output", required=True, metavar="FOLDER", help=f"folder to fill; sessions find it in {CACHE_VARIABLE}")
    parser.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="NAME:AxBxC",
        help="shape of a made-up input; once more for the same input: a further run, with that shape",
    )
    add_feed_arguments(parser)
    add_provider_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    folder = Path(arguments.output).absolute()
    if os.environ.get(WARMING) != str(folder):
        return _run_over(folder, arguments)
    from ort_sdk.cli.models.building import read_model

    entries = provider_entries(arguments)
    model = read_model(arguments.model, lambda: entries)
    start = time.perf_counter()
    with progress(f"compiling and packing what {arguments.model} needs"):
        runs = sum(_warm(arguments, entries, feeds) for feeds in _all_feeds(arguments, model))
    _let_all_read(folder)
    files = [path for path in folder.rglob("*") if path.is_file()]
    report = {
        "folder": str(folder),
        "runs": runs,
        "seconds": round(time.perf_counter() - start, 2),
        "files": len(files),
        "bytes": sum(path.stat().st_size for path in files),
    }
    if arguments.json:
        print_json(report)
    else:
        print_table(["measure", "value"], [(name, f"{value:,}" if name != "folder" else value) for name, value in report.items()])
    return ExitCode.OK


def _run_over(folder: Path, arguments: argparse.Namespace) -> int:
    """The same command in a process whose environment names the folder: providers read it once."""
    folder.mkdir(parents=True, exist_ok=True)
    configured = [name for name in os.environ if name.startswith("ORT_SDK") and name.endswith("_CACHE_DIR")]
    others = {name: value for name, value in os.environ.items() if name not in configured}
    return run_again(arguments, others | {CACHE_VARIABLE: str(folder), COMPILATION_VARIABLE: "wait", WARMING: str(folder)})


def _all_feeds(arguments: argparse.Namespace, model: Any) -> Iterator[dict[str, Any]]:
    """Feeds of each set of shapes."""
    return (measured_feeds(arguments, model, shapes=shapes) for shapes in _shape_sets(arguments.shape))


def _shape_sets(texts: Sequence[str]) -> list[dict[str, tuple[int, ...]]]:
    """Input name → shape, of each run: the first shapes of all inputs, then the second ones, and so on.

    Raises:
        InvalidArgument: a text is no name and shape.
    """
    by_name: dict[str, list[tuple[int, ...]]] = {}
    for text in texts:
        name, separator, shape = text.rpartition(":")
        sizes = shape.split("x")
        if not separator or not name or not all(size.isdecimal() for size in sizes):
            raise InvalidArgument(f"--shape takes NAME:AxBxC with whole numbers, as in images:1x3x224x224; got {text!r}")
        by_name.setdefault(name, []).append(tuple(map(int, sizes)))
    count = max(map(len, by_name.values()), default=1)
    return [{name: shapes[min(index, len(shapes) - 1)] for name, shapes in by_name.items()} for index in range(count)]


def _warm(arguments: argparse.Namespace, entries: Sequence[tuple[str, Mapping[str, Any]]], feeds: Mapping[str, Any]) -> int:
    """Run until nothing more is compiled; returns the number of runs."""
    from ort_sdk.cli.models.sessions import open_session

    session = open_session(arguments, entries)
    end, runs = time.perf_counter() + MOST_SECONDS, 0
    while not session.has_settled() and time.perf_counter() < end and runs < MOST_RUNS:
        session.run(None, feeds)
        runs += 1
    return runs


def _let_all_read(folder: Path) -> None:
    """Let all users read the folder, whatever the umask and the modes of private folders."""
    for path in (folder, *folder.rglob("*")):
        mode = path.stat().st_mode
        path.chmod(mode | _READ | (_ENTER if path.is_dir() else 0))
