"""pytest plugin: tests with the memory of arrays between inaccessible pages.

``PYTHONPATH=tests/guard_pages python -P -m pytest -p guard_pages --guard-pages back ...``

An access outside of an array ends the process. What was accessed, near which array, and in which test is written to the
terminal, with pytest-xdist at the end.
"""

import faulthandler
import os
import tempfile
import zlib
from pathlib import Path

import guard_memory
import pytest

MOST_UNGUARDED = 0.001
"""Of all arrays: more of them without guards, since the system has no more maps, and the tests show too little."""
_STANDARD_ERROR = os.fdopen(os.dup(2), "wb", buffering=0)
"""As it is before tests' output is captured."""
FOLDER_VARIABLE = "ORT_SDK_GUARD_PAGES_FOLDER"
SHARING = (
    "/memory/", "test_result_pool.py", "test_zero_copy.py", "test_external_data.py", "test_one_copy_of_weights.py",
    "test_aligned_weights.py", "test_packed_weights.py", "test_call_list.py",
    "test_allocator.py", "weight_is_kept_once", "is_aligned",
    "test_program_memory.py", "test_external_files.py", "test_matmul_nbits_packed.py", "test_dq_matmul",
    "test_dq_shift_matmul.py", "stay_in_the_file",
)  # fmt: skip
"""Parts of names of tests of how buffers are shared and aligned: they are not taken apart for these."""
MEASURING = (
    "test_one_copy_of_weights.py::test_the_weight_is_kept_once",
    "test_half_chains.py::test_weights_are_not_held_in_float",
    "test_bound_sessions.py::test_packing_copies_a_weight_once",
)
"""Of tests of how much memory is used, down to some pages: each array takes whole ones here. They are skipped."""


def pytest_addoption(parser):
    group = parser.getgroup("guard pages")
    group.addoption("--guard-pages", choices=sorted(guard_memory.SIDES), default="back", help="where arrays meet their guards")
    group.addoption("--guard-one-in", type=int, default=1, metavar="N", help="run one of N tests, others for each side")


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
    """Let all that is made from here on have guards."""
    report = Path(os.environ[FOLDER_VARIABLE]) / f"{os.getpid()}.report"
    file = report.open("wb", buffering=0) if hasattr(config, "workerinput") else _STANDARD_ERROR
    config._guard_pages_file = file
    guard_memory.install(config.getoption("--guard-pages"), os.environ[guard_memory.LIBRARY_VARIABLE], file.fileno())
    guard_memory.take_buffers_apart()
    faulthandler.enable(file)
    guard_memory.watch_faults()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out what is not asked for, and skip what cannot be."""
    share, side = config.getoption("--guard-one-in"), guard_memory.SIDES[config.getoption("--guard-pages")]
    left_out = [item for item in items if zlib.crc32(item.nodeid.encode()) % share != side % share]
    if left_out:
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % share == side % share]
        config.hook.pytest_deselected(items=left_out)
    for item in items:
        if any(part in item.nodeid for part in MEASURING):
            item.add_marker(pytest.mark.skip(reason="each array takes whole pages"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid):
    if guard_memory._library is not None:
        guard_memory.tell_context(nodeid)
        guard_memory.keep_together(any(part in nodeid for part in SHARING))


def pytest_sessionfinish(session):
    if guard_memory._library is not None:
        made, unguarded, _ = guard_memory.counts()
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["guard_pages"] = (made, unguarded)
        else:
            _add(session.config, made, unguarded)
    made, unguarded = _counts(session.config)
    if unguarded > made * MOST_UNGUARDED:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Called where workers are started, for each that ends in order."""
    _add(node.config, *getattr(node, "workeroutput", {}).get("guard_pages", (0, 0)))


def _add(config, made, unguarded):
    before = _counts(config)
    config._guard_pages_counts = (before[0] + made, before[1] + unguarded)


def _counts(config):
    return getattr(config, "_guard_pages_counts", (0, 0))


def pytest_terminal_summary(terminalreporter, config):
    made, unguarded = _counts(config)
    allowed = f"at most {MOST_UNGUARDED:.1%} may be"
    terminalreporter.write_line(f"guard pages: {made} arrays, {unguarded} of them without guards ({allowed})")
    for report in sorted(Path(os.environ[FOLDER_VARIABLE]).glob("*.report")):
        terminalreporter.write(report.read_text(errors="replace"))
