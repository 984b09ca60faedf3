"""One benchmark of this folder under two installations in turns: what a change did to each figure.

    python -P benchmarks/compare_versions.py [--rounds 5] [--check 1.02] [--columns TEXT] BEFORE AFTER SCRIPT [its arguments ...]

BEFORE and AFTER are Python interpreters of virtual environments with the two versions installed; each runs the script beside this
one. A figure is the median over the rounds of AFTER's number divided by BEFORE's of the same round, for every row and column that
both print: machines drift within minutes, so only figures of one round are compared. `--columns` takes the columns to show, as a
regular expression; `--check` fails where one of their ratios is above its number.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent

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


def run(python: str, script: str, arguments: list[str]) -> Figures:
    command = [python, "-P", str(HERE / script), *arguments]
    return figures(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def ratios(before: str, after: str, rounds: int, script: str, arguments: list[str]) -> Ratios:
    """After over before of each round; which goes first changes from round to round."""
    found: Ratios = defaultdict(list)
    for index in range(rounds):
        order = (before, after) if index % 2 == 0 else (after, before)
        results = {python: run(python, script, arguments) for python in order}
        for key in results[before].keys() & results[after].keys():
            if results[before][key]:
                found[key].append(results[after][key] / results[before][key])
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
    parser.add_argument("before", help="Python interpreter with the version to compare with")
    parser.add_argument("after", help="Python interpreter with the version that is judged")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--check", type=float, help="exit with 1 if one of the columns has a ratio above this")
    parser.add_argument("script", help="of this folder")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    found = ratios(options.before, options.after, options.rounds, options.script, options.arguments)
    shown = {key: values for key, values in found.items() if re.search(options.columns, key[1])}
    print(*lines(shown), sep="\n")
    if not shown:
        print(f"{options.script} printed no figures in columns like '{options.columns}'", file=sys.stderr)
        return 1
    return int(options.check is not None and max(map(statistics.median, shown.values())) > options.check)


if __name__ == "__main__":
    sys.exit(main())
