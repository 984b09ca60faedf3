"""Whose packed weights a session uses, and folders that cannot be used: real owners and modes."""

import gc
import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from ort_sdk.api.file_trust import make_subfolder, open_trusted_file, require_trusted_folder
from tests.memory.models import WEIGHT, X, close_to, run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no owners and modes of files")
is_root = sys.platform != "win32" and os.geteuid() == 0
needs_root = pytest.mark.skipif(not is_root, reason="only root can give files away, or take another user's place")

CACHE = "session.prepack_cache_dir"
STRANGER = 12345


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def forget(provider):
    """As a new process would begin."""
    provider.kernels.clear()
    gc.collect()


def packed_again(provider, start, model_path, folder):
    """How many weights a further process packs."""
    forget(provider)
    before = provider.packed
    close_to(run(start(model_path, {CACHE: folder})), X @ WEIGHT)
    return provider.packed - before


def test_the_folder_is_the_users_alone_whatever_the_mask(provider, start, model_path, tmp_path):
    folder = tmp_path / "new" / "cache"
    before = os.umask(0)
    try:
        assert packed_again(provider, start, model_path, folder) == 1
    finally:
        os.umask(before)
    (file,) = folder.iterdir()
    assert [mode(path) for path in (folder.parent, folder, file)] == [0o700, 0o700, 0o600]
    assert packed_again(provider, start, model_path, folder) == 0


@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH])
def test_files_that_others_can_write_are_replaced(provider, start, model_path, tmp_path, caplog, bit):
    packed_again(provider, start, model_path, tmp_path / "cache")
    (file,) = (tmp_path / "cache").iterdir()
    file.chmod(mode(file) | bit)
    assert packed_again(provider, start, model_path, tmp_path / "cache") == 1
    assert "lets others write it" in caplog.text
    assert mode(file) == 0o600
    assert packed_again(provider, start, model_path, tmp_path / "cache") == 0


@pytest.mark.parametrize("bit", [stat.S_IWGRP, stat.S_IWOTH])
def test_folders_that_others_can_write_are_not_used(provider, start, model_path, tmp_path, caplog, bit):
    folder = tmp_path / "cache"
    packed_again(provider, start, model_path, folder)
    folder.chmod(mode(folder) | bit)
    content = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert packed_again(provider, start, model_path, folder) == 1
    (record,) = caplog.records
    assert str(folder) in record.getMessage()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == content


@needs_root
@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_belongs_to_a_stranger_is_not_used(provider, start, model_path, tmp_path, caplog, what):
    folder = tmp_path / "cache"
    packed_again(provider, start, model_path, folder)
    (file,) = folder.iterdir()
    os.chown(folder if what == "folder" else file, STRANGER, -1)
    assert packed_again(provider, start, model_path, folder) == 1
    assert f"belongs to user {STRANGER}" in caplog.text


@needs_root
def test_what_root_keeps_is_read_by_others():
    with tempfile.TemporaryDirectory() as reached_by_all:
        Path(reached_by_all).chmod(0o755)
        folder = make_subfolder(Path(reached_by_all), "cache")
        assert mode(folder) == 0o755
        (folder / "file").write_bytes(b"content")
        (folder / "file").chmod(0o644)
        os.seteuid(STRANGER)
        try:
            require_trusted_folder(folder)
            with os.fdopen(open_trusted_file(folder, "file"), "rb") as file:
                assert file.read() == b"content"
        finally:
            os.seteuid(0)


def test_links_to_the_folder_are_followed_once(provider, start, model_path, tmp_path):
    (tmp_path / "behind").mkdir(mode=0o755)
    (tmp_path / "cache").symlink_to(tmp_path / "behind")
    assert packed_again(provider, start, model_path, tmp_path / "cache") == 1
    assert len(list((tmp_path / "behind").iterdir())) == 1
    assert packed_again(provider, start, model_path, tmp_path / "cache") == 0


@pytest.mark.parametrize("number", [28, 30, 122, 5])
def test_folders_the_system_does_not_make(provider, start, model_path, tmp_path, monkeypatch, caplog, number):
    def refuse(*arguments, **options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "mkdir", refuse)
    assert packed_again(provider, start, model_path, tmp_path / "cache") == 1
    (record,) = caplog.records
    assert os.strerror(number) in record.getMessage()
