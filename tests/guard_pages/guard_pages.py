"""pytest plugin: tests with the memory of arrays between inaccessible pages.

``PYTHONPATH=tests/guard_pages python -P -m pytest -p guard_pages --guard-pages back ...``

An access outside of an array ends the process. What was accessed, near which array, and in which test is written to the
terminal, or with pytest-xdist told at the end.
"""

import faulthandler
import os
import tempfile
from pathlib import Path

import guard_memory
import pytest

MOST_UNGUARDED = 0.001
"""Of all arrays: more of them without guards, since the system has no more maps, and the tests show too little."""
FOLDER_VARIABLE = "ORT_SDK_GUARD_PAGES_FOLDER"
SHARING = {
    "test_recycled_memory.py": "memory of results is not used again between guards",
    "test_memory_of_a_large_result_is_used_again_when_nobody_holds_it": "memory of results is not used again between guards",
    "test_arrays_are_aligned_and_of_the_shape_asked": "arrays end where pages end, and begin anywhere",
}
"""Tests of what is taken apart, by a part of their names."""


def pytest_addoption(parser):
    parser.addoption("--guard-pages", choices=sorted(guard_memory.SIDES), default="back", help="where arrays meet their guards")


def pytest_configure(config):
    """Build once, in the process that starts the others."""
    if FOLDER_VARIABLE not in os.environ:
        config._guard_pages_folder = tempfile.TemporaryDirectory(prefix="guard-pages-")
        os.environ[FOLDER_VARIABLE] = config._guard_pages_folder.name
        os.environ[guard_memory.LIBRARY_VARIABLE] = str(guard_memory.build(config._guard_pages_folder.name))
    if _runs_tests(config):
        _guard(config)


def _runs_tests(config):
    return hasattr(config, "workerinput") or not config.getoption("numprocesses", None)


def _guard(config):
    report = Path(os.environ[FOLDER_VARIABLE]) / f"{os.getpid()}.report"
    file = report.open("wb", buffering=0) if hasattr(config, "workerinput") else _STANDARD_ERROR
    config._guard_pages_file = file
    guard_memory.install(config.getoption("--guard-pages"), os.environ[guard_memory.LIBRARY_VARIABLE], file.fileno())
    guard_memory.take_buffers_apart()
    faulthandler.enable(file)
    guard_memory.watch_faults()


_STANDARD_ERROR = os.fdopen(os.dup(2), "wb", buffering=0)
"""As it is before tests' output is captured."""


def pytest_collection_modifyitems(items):
    for item in items:
        for part, reason in SHARING.items():
            if part in item.nodeid:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid):
    if guard_memory._library is not None:
        guard_memory.tell_context(nodeid)


def pytest_sessionfinish(session):
    if guard_memory._library is None:
        return
    made, unguarded, _ = guard_memory.counts()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["guard_pages"] = (made, unguarded)
    else:
        _add(session.config, made, unguarded)


def pytest_testnodedown(node, error):
    """Called where workers are started, for each that ends in order."""
    _add(node.config, *node.workeroutput["guard_pages"]) if "guard_pages" in getattr(node, "workeroutput", {}) else None


def _add(config, made, unguarded):
    before = getattr(config, "_guard_pages_counts", (0, 0))
    config._guard_pages_counts = (before[0] + made, before[1] + unguarded)


def pytest_terminal_summary(terminalreporter, config):
    made, unguarded = getattr(config, "_guard_pages_counts", (0, 0))
    terminalreporter.write_line(f"guard pages: {made} arrays, {unguarded} of them without guards")
    for report in sorted(Path(os.environ[FOLDER_VARIABLE]).glob("*.report")):
        terminalreporter.write(report.read_text(errors="replace"))
    if unguarded > made * MOST_UNGUARDED:
        pytest.exit(f"{unguarded} of {made} arrays had no guards, more than {MOST_UNGUARDED:.1%}", returncode=1)
