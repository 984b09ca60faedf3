"""Whose compiled kernels are used, and what happens where none can be kept: real folders, owners, modes and limits."""

import ctypes
import errno
import logging
import os
import resource
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from ort_sdk_cpu.execution_provider import CpuExecutionProvider
from ort_sdk_cpu.jit import cache_files, cache_folder, code_store, llvm
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.run_settings import set_log_level

pytestmark = [
    pytest.mark.skipif(not libraries.numba().is_usable, reason=str(libraries.numba())),
    pytest.mark.skipif(sys.platform == "win32", reason="there are no owners and modes of files"),
]
needs_root = pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can take another user's place")

STRANGER = 12345
NO_FOLDER = Path(__file__)
"""Nothing can be made in it: as a package that was installed by root."""
SUM = "define i64 @total(i64 %a, i64 %b) {\n  %sum = add i64 %a, %b\n  ret i64 %sum\n}"


@pytest.fixture(autouse=True)
def fresh(monkeypatch, caplog):
    """As in a process that has asked for no folder yet, of a session that leaves what is logged to the logger."""
    for name in ("", "ort_sdk.cpu"):  # tests before these, and libraries that they import, may have set other levels
        caplog.set_level(logging.WARNING, name)
    caplog.handler.setLevel(logging.NOTSET)
    monkeypatch.setattr(cache_folder, "_logged", set())
    set_log_level(None)
    forget()
    yield
    forget()


def forget():
    cache_folder.kernel_folders.cache_clear()
    code_store._store.cache_clear()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder that the variable names; it is not there yet."""
    monkeypatch.setenv(cache_folder.CACHE_VARIABLE, str(tmp_path / "named" / "kernels"))
    return tmp_path / "named" / "kernels"


@pytest.fixture
def readable():
    """A folder of root's that all users reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def builds(count=1):
    """How often a function is built when it is asked for in new processes; it must compute in each."""
    built = []

    def build():
        built.append(1)
        return "total", llvm.emit_object(SUM)

    for _ in range(count):
        forget()
        assert (
            ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(code_store.code_address("total", build))(40, 2) == 42
        )
    return len(built)


def kept(place):
    """The folder of kernels, and the one file in it."""
    (folder,) = place.iterdir()
    (file,) = folder.iterdir()
    return folder, file


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "ort_sdk.cpu"]


def test_folders_are_made_for_the_user_alone_whatever_the_mask(place):
    before = os.umask(0)
    try:
        assert builds(2) == 1
    finally:
        os.umask(before)
    folder, file = kept(place)
    assert [mode(path) for path in (place.parent, place, folder, file)] == [0o700, 0o700, 0o700, 0o600]


@needs_root
def test_what_root_keeps_serves_all_who_may_read_its_folder(readable, monkeypatch):
    place = readable / "kernels"
    place.mkdir(mode=0o755)
    monkeypatch.setenv(cache_folder.CACHE_VARIABLE, str(place))
    assert builds() == 1
    folder, file = kept(place)
    assert (mode(folder), mode(file)) == (0o755, 0o644)
    os.seteuid(STRANGER)
    try:
        assert builds(2) == 0
        assert cache_folder.cache_folder() is None
    finally:
        os.seteuid(0)
    assert kept(place) == (folder, file)


def open_to(bits):
    return lambda path: path.chmod(mode(path) | bits)


def to_a_link(path):
    target = path.with_name(f"{path.name}-behind")
    path.rename(target)
    path.symlink_to(target)


def give_away(path):
    os.chown(path, STRANGER, -1)


DOUBTS = {"group": open_to(stat.S_IWGRP), "others": open_to(stat.S_IWOTH), "a link": to_a_link, "a stranger": give_away}


@pytest.mark.parametrize("doubt", DOUBTS)
@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_others_can_write_is_not_run(place, caplog, what, doubt):
    if doubt == "a stranger" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    assert builds() == 1
    folder, file = kept(place)
    DOUBTS[doubt](folder if what == "folder" else file)
    assert builds(1) == 1
    (line,) = lines(caplog)
    assert str(folder if what == "folder" else file) in line
    if what == "file":
        # It is replaced: the folder is the user's own.
        assert not file.is_symlink()
        assert (mode(file), file.stat().st_uid) == (0o600, os.geteuid())
        assert builds(1) == 0


def test_another_users_folder_gets_nothing(place):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    builds()
    folder, file = kept(place)
    file.unlink()
    give_away(folder)
    assert builds(2) == 2
    assert list(folder.iterdir()) == []


def failing(number):
    def fail(*arguments, **options):
        raise OSError(number, os.strerror(number))

    return fail


NOWHERE = {
    "no locks": ("fcntl.flock", errno.ENOLCK, True),
    "locks fail": ("fcntl.flock", errno.EIO, True),
    "full": ("os.fchmod", errno.ENOSPC, False),
    "over quota": ("os.fchmod", errno.EDQUOT, False),
    "broken": ("os.replace", errno.EIO, False),
    "read only": ("os.open", errno.EROFS, False),
    "nothing to make": ("os.mkdir", errno.ENOSPC, False),
}


@pytest.mark.parametrize("fault", NOWHERE)
def test_refusals_of_the_system_cost_time_only(place, monkeypatch, caplog, fault):
    name, number, is_kept = NOWHERE[fault]
    monkeypatch.setattr(name, failing(number))
    assert builds(3) == (1 if is_kept else 3)
    files = [path for path in place.rglob("*") if path.is_file()] if place.is_dir() else []
    assert [path.suffix for path in files] == ([".image"] if is_kept and llvm.can_link() else [".o"] if is_kept else [])
    said = lines(caplog)
    assert len(said) <= 1
    assert all(os.strerror(number) in line for line in said)
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    assert said or fault == "nothing to make"  # of which kernels that take long to compile tell


def test_files_that_become_too_large(place, caplog):
    builds()
    _, file = kept(place)
    file.unlink()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        assert builds(2) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert [path for path in place.rglob("*") if path.is_file()] == []
    (line,) = lines(caplog)
    assert os.strerror(errno.EFBIG) in line


def test_a_file_system_that_is_full(tmp_path, monkeypatch, caplog):
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        (place / "filler").write_bytes(bytes(4096))
        monkeypatch.setenv(cache_folder.CACHE_VARIABLE, str(place))
        assert builds(2) == 2
        assert [path.name for path in place.rglob("*") if path.is_file()] == ["filler"]
        (line,) = lines(caplog)
        assert os.strerror(errno.ENOSPC) in line
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_user_without_home(monkeypatch, caplog):
    import pwd

    for name in ("HOME", "XDG_CACHE_HOME", cache_folder.CACHE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    monkeypatch.setattr(cache_folder, "_PACKAGE", NO_FOLDER)
    with pytest.raises(RuntimeError, match="home"):
        Path.home()
    assert builds(2) == 2
    assert cache_folder.cache_folder() is None


def test_a_relative_cache_folder_of_the_user_is_none(monkeypatch, tmp_path):
    monkeypatch.delenv(cache_folder.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    monkeypatch.setattr(cache_folder, "_PACKAGE", NO_FOLDER)
    monkeypatch.chdir(tmp_path)
    assert builds(2) == 2
    assert list(tmp_path.iterdir()) == []


def test_numbas_folder_is_not_used(place, monkeypatch, tmp_path):
    (tmp_path / "numba").mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    assert builds(2) == 1
    monkeypatch.delenv(cache_folder.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(cache_folder, "_PACKAGE", NO_FOLDER)
    assert builds(2) == 1
    assert list((tmp_path / "numba").iterdir()) == []


@pytest.mark.parametrize(("severity", "is_heard"), [("0", True), ("1", True), ("2", False), ("3", False), ("4", False)])
def test_compiling_is_logged_as_far_as_the_session_logs(place, caplog, severity, is_heard):
    provider = CpuExecutionProvider("CPUExecutionProvider", session_options={"session.log_severity_level": severity})
    cache_folder.log_compiled("made", 1.0)
    other = CpuExecutionProvider("CPUExecutionProvider", session_options={"session.log_severity_level": "4"})
    cache_folder.log_compiled("other", 1.0)
    with provider.run_scope():
        cache_folder.log_compiled("run", 1.0)
    with other.run_scope():
        cache_folder.log_compiled("other", 1.0)
    assert [line.split(", ")[1] for line in lines(caplog)] == (["made", "run"] if is_heard else [])


def test_nothing_is_kept_of_a_write_that_was_interrupted(place, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    builds()
    folder, file = kept(place)
    file.unlink()
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache_files.write_atomically("one", b"content")
    assert list(folder.iterdir()) == []


QUIET = """
import logging, sys
import numpy as np, onnx, ort_sdk
from onnx import helper
value = lambda name: helper.make_tensor_value_info(name, 1, [64, 512])
graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "g", [value("x")], [value("y")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
options = ort_sdk.SessionOptions()
if sys.argv[1] == "at level INFO":
    logging.basicConfig()
    options.log_severity_level = 1
session = ort_sdk.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
for _ in range(3):
    session.run(None, {"x": np.ones((64, 512), np.float32)})
"""


@pytest.mark.parametrize("how", ["at level INFO", "by default"])
def test_compiling_is_logged_at_the_level_info(tmp_path, how):
    command = [sys.executable, "-P", "-c", QUIET, how]
    environment = os.environ | {cache_folder.CACHE_VARIABLE: str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ("compiled CPU kernel 1" in done.stderr) == (how == "at level INFO"), done.stderr
    assert how == "at level INFO" or not done.stdout + done.stderr
    assert list(tmp_path.glob("*/*"))
