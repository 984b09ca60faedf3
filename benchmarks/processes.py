"""Measuring in fresh processes: a script calls itself with what to measure, and reads figures from its output."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
MEGABYTE = 1e6


def anonymous_mb() -> float:
    """Megabytes of memory that belong to this process alone and are no file's; 0 where the system does not tell."""
    if not STATUS.exists():
        return 0.0
    line = next(line for line in STATUS.read_text(encoding="ascii").splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024 / MEGABYTE


def measure_in_child(script: str, *arguments: str) -> dict[str, float]:
    """Figures that a fresh process prints as one line of JSON."""
    command = [sys.executable, "-P", script, "--child", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def print_table(first: str, rows: dict[str, dict[str, float]]) -> None:
    columns = {column: max(len(column), 6) + 3 for column in next(iter(rows.values()))}
    width = max(len(name) for name in (first, *rows)) + 2
    print(f"{first:<{width}}" + "".join(f"{column:>{size}}" for column, size in columns.items()))
    for name, row in rows.items():
        print(f"{name:<{width}}" + "".join(f"{row[column]:>{size}.1f}" for column, size in columns.items()))
