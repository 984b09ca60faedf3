"""Guard pages: each access outside of an array ends the process and is described; all else works as without them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guard_pages.requirements import needs_guard_pages

HERE = Path(__file__).resolve().parent
pytestmark = needs_guard_pages

START = """
import ctypes, sys, threading
import numpy as np
import guard_memory
guard_memory.install(sys.argv[1], sys.argv[2])
guard_memory.watch_faults()
guard_memory.tell_context("the test")
def byte(array, offset):
    return ctypes.c_uint8.from_address(array.ctypes.data + offset)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    sys.path.insert(0, str(HERE))
    try:
        import guard_memory
    finally:
        sys.path.remove(str(HERE))
    return guard_memory.build(tmp_path_factory.mktemp("library"))


@pytest.fixture
def run(library):
    def run(side, text, code=0):
        path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-P", "-c", START + text, side, str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path})
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run


SEGMENTATION_FAULT, ABORTED = -11, -6


@pytest.mark.parametrize("nbytes", [1, 12, 63, 4095, 4096, 4097, 1_048_576, 1_048_577, 5_000_001])
@pytest.mark.parametrize(("access", "word"), [(".value", "read"), (".value = 1", "write")])
def test_the_first_byte_behind(run, nbytes, access, word):
    said = run("back", f"x = np.empty({nbytes}, np.uint8); byte(x, {nbytes}){access}", SEGMENTATION_FAULT)
    assert "during the test" in said
    assert f"byte 1 behind an array of {nbytes} bytes" in said
    assert "made in <string>, line" in said
    if os.uname().machine == "x86_64":
        assert f", {word} at" in said


@pytest.mark.parametrize("nbytes", [1, 4096, 5_000_001])
def test_the_last_byte_before(run, nbytes):
    said = run("front", f"x = np.empty({nbytes}, np.uint8); byte(x, -1).value", SEGMENTATION_FAULT)
    assert f"1 bytes before an array of {nbytes} bytes" in said


@pytest.mark.parametrize(("side", "offset", "text"), [("back", -1, "byte 1 before"), ("front", 100, "byte 1 behind")])
def test_the_other_side_is_looked_at_when_an_array_ends(run, side, offset, text):
    said = run(side, f"x = np.empty(100, np.uint8); byte(x, {offset}).value = 1; del x", ABORTED)
    assert f"{text} an array of 100 bytes was written" in said


@pytest.mark.parametrize("nbytes", [100, 5_000_001])
def test_memory_of_an_array_that_is_gone(run, nbytes):
    text = f"x = np.empty({nbytes}, np.uint8); first = byte(x, 0); del x; first.value"
    assert f"byte 0 of an array of {nbytes} bytes that was freed" in run("back", text, SEGMENTATION_FAULT)


def test_arrays_of_other_threads(run):
    text = """
made = []
thread = threading.Thread(target=lambda: made.append(np.empty(28, np.uint8)))
thread.start(); thread.join()
byte(made[0], 28).value
"""
    assert "byte 1 behind an array of 28 bytes" in run("back", text, SEGMENTATION_FAULT)


@pytest.mark.parametrize("side", ["back", "front"])
def test_arrays_work(run, side):
    text = """
old = np.arange(1000)
assert np.isnan(np.empty(3)).all() and not np.zeros(5000).any()
for size in (0, 1, 1000, 10**6):
    x = np.arange(size)
    assert x.sum() == size * (size - 1) // 2
y = np.arange(10)
y.resize(10**5, refcheck=False)
assert y[:10].tolist() == list(range(10)) and not y[10:].any()
assert np.array(["a", None], object).tolist() == ["a", None]
del old
made, unguarded, live = guard_memory.counts()
assert made > 10 and unguarded == 0 and live < made
"""
    run(side, text)


def test_arrays_beyond_what_the_system_can_map_have_no_guards(run):
    text = """
before = guard_memory.counts()[2]
kept = [np.empty(10) for _ in range(40_000)]
made, unguarded, live = guard_memory.counts()
assert made >= 40_000 and unguarded + live >= 40_000
for array in kept:
    array.fill(1)
del kept, array
assert guard_memory.counts()[2] == before
"""
    run("back", text)


OVERRUN = """
import ctypes
import numpy as np

def test_within():
    assert np.ones(5).sum() == 5

def test_overrun():
    x = np.empty(7, np.uint8)
    ctypes.c_uint8.from_address(x.ctypes.data + 7).value = 1

def test_later():
    assert np.ones(6).sum() == 6
"""


@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["one process", "worker"])
def test_the_plugin_names_test_and_array(tmp_path, options):
    (tmp_path / "test_overrun.py").write_text(OVERRUN, encoding="utf-8")
    path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "ORT_SDK_GUARD"))}
    command = [sys.executable, "-P", "-m", "pytest", "-p", "guard_pages", "--guard-pages", "back", *options, str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment | {"PYTHONPATH": path}
    )
    said = done.stdout + done.stderr
    assert done.returncode, said
    assert "test_overrun.py::test_overrun" in said
    assert "byte 1 behind an array of 7 bytes" in said
    assert not options or "2 passed" in said
