"""Mutants of real models through whole sessions: a result or a clear error, in bounded time and memory.

A failure names its seed; ``rebuild(seed)`` gives the model again.
"""

import random

import pytest

from tests.fuzz.mutations import mutate
from tests.fuzz.seeds import control_flow_models, seed_models
from tests.fuzz.trial import TookTooLong, quiet_attempt

SHORT, LONG = 1000, 100_000
BATCH = 250


def rebuild(seed):
    """The mutant of a seed: (bytes, what it was, what was done to it)."""
    rng = random.Random(seed)
    name, data = rng.choice(control_flow_models() if rng.random() < 0.2 else seed_models())
    mutant, done = mutate(data, rng)
    return mutant, name, done


def try_seeds(first, count):
    """Try mutants; returns how many sessions could be made and how many runs gave results."""
    made = completed = 0
    for seed in range(first, first + count):
        mutant, name, done = rebuild(seed)
        try:
            sessions, runs = quiet_attempt(mutant, seed)
        except TookTooLong:
            if b"Loop" in mutant:
                continue  # a trip count may be anything, and the caller may stop the run
            pytest.fail(f"seed {seed}, {name} after {done}: took too long")
        except Exception as error:
            raise AssertionError(f"seed {seed}, {name} after {done}: {type(error).__name__}: {error}") from error
        made, completed = made + sessions, completed + runs
    return made, completed


@pytest.mark.parametrize("first", range(0, SHORT, BATCH))
def test_mutants(first):
    made, completed = try_seeds(first, BATCH)
    assert made > BATCH / 4, "mutants that never load test nothing beyond the loader"
    assert completed > made


@pytest.mark.slow
@pytest.mark.parametrize("first", range(SHORT, LONG, 40 * BATCH))
def test_many_mutants(first):
    try_seeds(first, 40 * BATCH)
