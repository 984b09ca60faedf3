"""Mutants of operators, and of whole models: their feeds, shapes, attributes, constants and layouts, between guard pages.

All five runs of a mutant give equal results, or errors of one class; nothing outside of an array is touched, and no other
exception is shown. ``python -P tests/fuzz/operator_worker.py --seed N`` says what a mutant is, and tries it.
"""

import fcntl
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import model_seeds, operator_seeds
from tests.guard_pages.requirements import needs_guard_pages

pytestmark = needs_guard_pages
WORKER = Path(__file__).with_name("operator_worker.py")
SHORT, SHORT_BATCH = 3000, 500
LONG_BATCH, LONG_ROUNDS = 5000, 10
MODELS_BATCH, MODELS_ROUNDS, MODEL_SECONDS = 250, 4, 10
WAYS = tuple(itertools.product(("native", "avx2"), ("back", "front")))
"""Instruction sets and sides; a round is a batch of each."""
MODELS_VARIABLE = "ORT_SDK_FUZZ_MODELS"
SILENCE_SECONDS = 180
"""Of a worker in a mutant: compiled code notices no signal."""
MOST_UNGUARDED = 0.001


@pytest.fixture(scope="session")
def seeds(tmp_path_factory):
    """File of the seeds, recorded by the first process that asks."""
    return _recorded_once(tmp_path_factory, "operator_seeds", operator_seeds.record)


@pytest.fixture(scope="session")
def seeds_of_models(tmp_path_factory):
    """File of the seeds made of the models in folders that a variable names."""
    folders = os.environ[MODELS_VARIABLE].split(os.pathsep)
    return _recorded_once(tmp_path_factory, "model_seeds", lambda path: model_seeds.record(folders, path))


def _recorded_once(tmp_path_factory, name, record):
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    path = folder / f"{name}.pickle"
    with (folder / f"{name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            record(path)
    return path


def try_mutants(seeds, side, first, count, isa="native", seconds=1):
    """What came of each mutant; a crash, and the silence of one that hangs in compiled code, are outcomes, too.

    Args:
        seeds: file of what mutants are made of.
        side: on which the first byte outside of an array is inaccessible.
        first: number of the first mutant.
        count: of mutants.
        isa: instruction set.
        seconds: for each mutant.
    """
    rows = []
    environment = os.environ if isa == "native" else os.environ | {"ORT_SDK_CPU_ISA": isa}
    while len(rows) < count:
        rows += _try_until_one_ends(seeds, side, first + len(rows), count - len(rows), environment, seconds)
    return rows


def _try_until_one_ends(seeds, side, first, count, environment, seconds):
    command = [sys.executable, "-P", WORKER, "--seeds", seeds, "--first", str(first), "--count", str(count), "--side", side]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
        try:
            output, errors = worker.communicate(timeout=SILENCE_SECONDS + count * seconds)
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


def _batches(first, count, rounds):
    """(first mutant, instruction set, side) of batches."""
    return [(first + place * count, *way) for place, way in enumerate(WAYS * rounds)]


@pytest.mark.slow
@pytest.mark.parametrize(("first", "isa", "side"), _batches(SHORT, LONG_BATCH, LONG_ROUNDS))
def test_many_mutants(first, isa, side, seeds):
    check(try_mutants(seeds, side, first, LONG_BATCH, isa))


@pytest.mark.slow
@pytest.mark.skipif(MODELS_VARIABLE not in os.environ, reason=f"{MODELS_VARIABLE} names no folders of models to mutate")
@pytest.mark.parametrize(("first", "isa", "side"), _batches(0, MODELS_BATCH, MODELS_ROUNDS))
def test_mutants_of_models(first, isa, side, seeds_of_models):
    check(try_mutants(seeds_of_models, side, first, MODELS_BATCH, isa, MODEL_SECONDS))
