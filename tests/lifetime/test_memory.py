"""Private memory of a process that makes, runs and drops sessions, with the garbage collector off."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lifetime.sessions import perceptron

ROLLUP = Path("/proc/self/smaps_rollup")
THREADS = 4
SESSIONS = """
import gc, sys, threading
import numpy as np
import ort_sdk

path, count, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
gc.disable()

def private():
    rows = [line.split() for line in open("/proc/self/smaps_rollup") if line.startswith("Private_")]
    return sum(int(row[1]) for row in rows) << 10

def use():
    session = ort_sdk.InferenceSession(path, providers=["CPUExecutionProvider"])
    width = session.get_inputs()[0].shape[1]
    x = np.ones((8, width), np.float32)
    for _ in range(3):
        session.run(None, {"x0": x})

def use_in_turn():
    for _ in range(count // max(threads, 1)):
        use()
        if threads == 0:
            print(private(), flush=True)

if threads == 0:
    use_in_turn()
else:
    for _ in range(4):
        running = [threading.Thread(target=use_in_turn) for _ in range(threads)]
        [thread.start() for thread in running]
        [thread.join() for thread in running]
        print(private(), flush=True)
"""

pytestmark = pytest.mark.skipif(not ROLLUP.exists(), reason="the system does not tell how much memory is private")


def measured(path, count, threads=0):
    """Private bytes after each session, or after each round of threads."""
    command = [sys.executable, "-c", SESSIONS, str(path), str(count), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=3600)
    return [int(line) for line in done.stdout.split()]


def check_flat(path, sizes, most_models):
    """Later sessions add less than the weights of some models; each that stayed would add all of its own."""
    weights, early = path.stat().st_size, max(sizes[: max(1, len(sizes) // 4)])
    shown = f"models of {weights >> 20} MiB; private memory in MiB: {[size >> 20 for size in sizes]}"
    assert max(sizes) < early + most_models * weights, shown


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("memory") / "small.onnx"
    path.write_bytes(perceptron(layers=5, width=1024))
    return path


def test_sessions_one_after_the_other(small):
    check_flat(small, measured(small, 24), 0.5)


def test_sessions_in_threads(small):
    """Threads have heaps of their own, which keep what one of them had last."""
    check_flat(small, measured(small, 16, threads=THREADS), THREADS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_sessions_of_a_large_model(tmp_path):
    path = tmp_path / "large.onnx"
    path.write_bytes(perceptron(layers=12, width=2048))
    check_flat(path, measured(path, 1000), 0.25)
