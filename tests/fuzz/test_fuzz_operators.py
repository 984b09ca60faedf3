"""Mutants of operators' feeds, shapes, attributes and layouts, between guard pages.

All five runs of a mutant give equal results, or errors of one class; nothing outside of an array is touched, and no other
exception is shown. ``python -P tests/fuzz/operator_worker.py --seed N`` says what a mutant is, and tries it.
"""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import operator_seeds
from tests.guard_pages.requirements import needs_guard_pages

pytestmark = needs_guard_pages
WORKER = Path(__file__).with_name("operator_worker.py")
SHORT, SHORT_BATCH = 3000, 500
LONG, LONG_BATCH = 100_000, 5000
SILENCE_SECONDS = 180
"""Of a worker in a mutant: compiled code notices no signal."""
MOST_UNGUARDED = 0.001


@pytest.fixture(scope="session")
def seeds(tmp_path_factory):
    """File of the seeds, recorded by the first process that asks."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    path = folder / "operator_seeds.pickle"
    with (folder / "operator_seeds.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            operator_seeds.record(path)
    return path


def try_mutants(seeds, side, first, count):
    """What came of each mutant; a crash, and the silence of one that hangs in compiled code, are outcomes, too."""
    rows = []
    while len(rows) < count:
        rows += _try_until_one_ends(seeds, side, first + len(rows), count - len(rows))
    return rows


def _try_until_one_ends(seeds, side, first, count):
    command = [sys.executable, "-P", WORKER, "--seeds", seeds, "--first", str(first), "--count", str(count), "--side", side]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        try:
            output, errors = worker.communicate(timeout=SILENCE_SECONDS + count)
        except subprocess.TimeoutExpired:
            worker.kill()
            output, errors = worker.communicate()
    lines = [json.loads(line) for line in output.splitlines()]
    rows = [line for line in lines if "kind" in line]
    if worker.returncode:
        assert lines, f"the worker failed before the first mutant:\n{errors}"
        _, found, where = errors.partition("guard pages:")
        rows.append(lines[-1] | {"kind": "crash", "text": found + where or errors})
    else:
        assert lines[-1]["unguarded"] <= MOST_UNGUARDED * lines[-1]["arrays"], lines[-1]
    return rows


def check(rows):
    """Fails with all that may not be."""
    wrong = [row for row in rows if row["kind"] not in {"result", "refused"}]
    assert wrong == []


@pytest.mark.parametrize("first", range(0, SHORT, SHORT_BATCH))
def test_mutants(first, seeds):
    rows = try_mutants(seeds, "front" if first // SHORT_BATCH % 2 else "back", first, SHORT_BATCH)
    check(rows)
    kinds = [row["kind"] for row in rows]
    assert min(kinds.count("result"), kinds.count("refused")) > SHORT_BATCH // 10, "mutants of one outcome test little"


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SHORT, SHORT + LONG, LONG_BATCH))
def test_many_mutants(first, seeds):
    check(try_mutants(seeds, "front" if first // LONG_BATCH % 2 else "back", first, LONG_BATCH))
