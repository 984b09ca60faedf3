"""One benchmark of this folder under two installations in turns: what a change did to each figure.

    python -P benchmarks/compare_versions.py [--rounds 5] [--check 1.02] [--columns TEXT] BEFORE AFTER SCRIPT [its arguments ...]

BEFORE and AFTER are Python interpreters of virtual environments with the two versions installed, or revisions that git knows:
those are checked out into a temporary folder and run by this interpreter, which needs the distributions installed for their
entry points. Each runs the script beside this one. A figure is the median over the rounds of AFTER's number divided by BEFORE's
of the same round, for every row and column that both print: machines drift within minutes, so only figures of one round are
compared. `--columns` takes the columns to show, as a regular expression; `--check` fails where one of their ratios is above its
number.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = (".", "providers/cpu/src", "providers/opencl/src")

Figures = dict[tuple[str, str], float]
Ratios = dict[tuple[str, str], list[float]]


def cells(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def number(cell: str) -> float | None:
    found = re.match(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", cell.replace(",", ""))
    return float(found.group()) if found else None


def figures(text: str) -> Figures:
    """Numbers of the tables that a benchmark prints, by row and column; a table's header has no number in it."""
    found: Figures = {}
    header: list[str] = []
    for line in text.splitlines():
        name, *values = cells(line)
        numbers = [number(value) for value in values]
        if values and not any(value is not None for value in numbers):
            header = [f"{value} {index}" if values.count(value) > 1 else value for index, value in enumerate(values)]
            continue
        for index, value in enumerate(numbers):
            if value is not None:
                found[name, header[index] if index < len(header) else str(index)] = value
    return found


@dataclass(frozen=True)
class Version:
    """What runs a benchmark: an interpreter, and the environment of its process."""

    python: str
    environment: dict[str, str]

    def run(self, script: str, arguments: list[str]) -> Figures:
        command = [self.python, "-P", str(HERE / script), *arguments]
        done = subprocess.run(command, env=self.environment, stdout=subprocess.PIPE, text=True, check=True)
        return figures(done.stdout)


@contextlib.contextmanager
def version(name: str) -> Iterator[Version]:
    """An interpreter as it is; a revision in a folder that goes afterwards, with compiled kernels of its own."""
    if Path(name).exists():
        yield Version(name, dict(os.environ))
        return
    git = ["git", "-C", str(HERE)]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(tree), name], check=True)
        try:
            paths = os.pathsep.join(str(tree / source) for source in SOURCES)
            own = {"PYTHONPATH": paths, "ORT_SDK_CPU_CACHE_DIR": str(Path(folder) / "kernels")}
            yield Version(sys.executable, os.environ | own)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", str(tree)], check=True)


def ratios(before: Version, after: Version, rounds: int, script: str, arguments: list[str]) -> Ratios:
    """After over before of each round; which goes first changes from round to round."""
    found: Ratios = defaultdict(list)
    for index in range(rounds):
        if index % 2 == 0:
            first, second = before.run(script, arguments), after.run(script, arguments)
        else:
            second, first = after.run(script, arguments), before.run(script, arguments)
        for key in first.keys() & second.keys():
            if first[key]:
                found[key].append(second[key] / first[key])
    return found


def lines(found: Ratios) -> Iterator[str]:
    width = max((len(f"{row}, {column}") for row, column in found), default=0)
    for row, column in sorted(found):
        values = found[row, column]
        name = f"{row}, {column}"
        yield f"{name:<{width}}  {statistics.median(values):6.3f}  ({min(values):.3f} to {max(values):.3f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", default="", help="regular expression, looked for in the columns' names")
    parser.add_argument("before", help="Python interpreter, or revision, of the version to compare with")
    parser.add_argument("after", help="Python interpreter, or revision, of the version that is judged")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", type=float, help="exit with 1 if one of the columns has a ratio above this")
    parser.add_argument("script", help="of this folder")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with version(options.before) as before, version(options.after) as after:
        before.run(options.script, options.arguments)  # compiles kernels, which is no part of any figure
        after.run(options.script, options.arguments)
        found = ratios(before, after, options.rounds, options.script, options.arguments)
    shown = {key: values for key, values in found.items() if re.search(options.columns, key[1])}
    print(*lines(shown), sep="\n")
    if not shown:
        print(f"{options.script} printed no figures in columns like '{options.columns}'", file=sys.stderr)
        return 1
    return int(options.check is not None and max(map(statistics.median, shown.values())) > options.check)


if __name__ == "__main__":
    sys.exit(main())
