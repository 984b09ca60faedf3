"""Built programs: kept on disk by all that decides them, and never trusted more than a compiler's own result."""

import os
import stat

import numpy as np
import pytest

from ort_sdk.api import RuntimeException, TensorElementType
from ort_sdk.device import OPENCL, KernelSource, Launch
from ort_sdk.device.drivers import DeviceForm, DriverStore, MemoryPool, opened_store

pytestmark = pytest.mark.opencl

TEXT = "KERNEL WORKGROUP(4, 1, 1) void twice(GLOBAL(f32) x) { x[LANE(0)] = STEP * x[LANE(0)]; }\n"


@pytest.fixture
def launcher_of_store(index):
    from ort_sdk_opencl.device import device_context
    from ort_sdk_opencl.launching.launcher import OpenClLauncher

    queue = device_context(index).launcher.queue
    form = DeviceForm(OPENCL, queue.found.device_class())

    def made(store=None):
        return OpenClLauncher(queue, form, MemoryPool(queue), store or opened_store("opencl", queue.found.identity))

    return made


@pytest.fixture
def folder(launcher_of_store, tmp_path, monkeypatch):
    """Of programs that tests build; those of the device's self-test, at its first use in a process, are kept elsewhere."""
    monkeypatch.setenv("ORT_SDK_CACHE_DIR", str(tmp_path))
    return tmp_path / "opencl"


def _computes(launcher, step=2, text=TEXT):
    from ort_sdk.device import DeviceContext

    context = DeviceContext(launcher)
    array = context.upload(np.arange(4, dtype=np.float32), TensorElementType.FLOAT)
    kernel = KernelSource("twice", text, (("STEP", f"{step}.0f"),))
    context.submit(Launch(kernel, (1,), (4,), (array.memory,), (0,)))
    np.testing.assert_array_equal(context.download(array), step * np.arange(4))
    return launcher.programs.built, launcher.programs.loaded


def test_a_program_is_compiled_once_per_machine(folder, launcher_of_store):
    assert _computes(launcher_of_store()) == (1, 0)
    assert len(list(folder.glob("program-*"))) == 1
    assert _computes(launcher_of_store()) == (0, 1)
    assert _computes(launcher_of_store(), step=3) == (1, 0)


def test_another_driver_compiles_anew(folder, launcher_of_store):
    _computes(launcher_of_store())
    other = opened_store("opencl", {"platform": "p", "device": "d", "driver": "2"})
    assert _computes(launcher_of_store(other)) == (1, 0)


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "another's"])
def test_a_damaged_file_is_compiled_anew(folder, launcher_of_store, damage):
    _computes(launcher_of_store())
    (path,) = folder.glob("program-*")
    content = path.read_bytes()
    if damage == "another's":
        _computes(launcher_of_store(), step=3)
        (other,) = set(folder.glob("program-*")) - {path}
        content = other.read_bytes()
    path.write_bytes({"cut": content[:-1], "changed": content[:-1] + b"?", "empty": b"", "another's": content}[damage])
    assert _computes(launcher_of_store()) == (1, 0)
    assert _computes(launcher_of_store()) == (0, 1)


def test_what_the_driver_does_not_take_is_compiled_anew(folder, launcher_of_store):
    from ort_sdk_opencl.launching.programs import Programs

    launcher = launcher_of_store()
    text = launcher.dialect.source(TEXT, {"HAS_F64": 1, "STEP": "2.0f"})
    store = opened_store("opencl", launcher.queue.found.identity)
    assert store.write(b"no program", "program", text)
    assert _computes(launcher) == (1, 0)
    assert Programs(launcher.queue, launcher.dialect, store, has_float64=True).folder == folder


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_files_that_others_may_write_are_not_read(folder, launcher_of_store, caplog):
    _computes(launcher_of_store())
    (path,) = folder.glob("program-*")
    path.chmod(0o666)
    assert _computes(launcher_of_store()) == (1, 0)
    assert "others write it" in caplog.text
    assert not stat.S_IMODE(path.stat().st_mode) & 0o022


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_a_folder_that_others_may_write_is_not_used(folder, launcher_of_store, caplog):
    folder.mkdir()
    folder.chmod(0o777)
    assert _computes(launcher_of_store()) == (1, 0)
    assert not list(folder.iterdir())
    assert "ORT_SDK_CACHE_DIR" in caplog.text


def test_a_folder_that_cannot_be_written_breaks_nothing(folder, launcher_of_store, caplog, monkeypatch):
    from ort_sdk.device.drivers import driver_store

    _computes(launcher_of_store())

    def refuse(*_arguments):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(driver_store, "replace_file", refuse)
    assert _computes(launcher_of_store()) == (0, 1)
    assert _computes(launcher_of_store(), step=3) == (1, 0)
    assert caplog.text.count("Read-only file system") == 1


def test_without_a_folder_nothing_is_kept(launcher_of_store):
    store = DriverStore(None, {})
    assert not store.write(b"content", "program", "key")
    assert store.read("program", "key") is None
    assert _computes(launcher_of_store(store)) == (1, 0)


def test_keys_are_told_apart_by_their_parts(tmp_path):
    store = DriverStore(tmp_path, {"driver": "1"})
    tmp_path.chmod(0o700)
    assert store.write(b"one", "program", "ab", "c")
    assert store.read("program", "a", "bc") is None
    assert store.read("selftest", "ab", "c") is None
    assert store.read("program", "ab", "c") == b"one"
    assert DriverStore(tmp_path, {"driver": "2"}).read("program", "ab", "c") is None


def test_a_kernel_that_does_not_compile_is_an_error_that_shows_what_the_compiler_said(launcher_of_store, platform):
    with pytest.raises(RuntimeException, match=r"(?s)compiling kernel 'twice' in dialect opencl for '.*undeclared"):
        _computes(launcher_of_store(), text=TEXT.replace("STEP *", "undeclared_name *"))
    assert _computes(launcher_of_store()) in ((1, 0), (0, 1))
