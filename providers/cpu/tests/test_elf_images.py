"""Compiled code as images: what a warm process loads, what is refused, and what happens where nothing can be mapped."""

import ctypes
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ort_sdk_cpu.jit import cache_folder, code_store, llvm, task_code
from ort_sdk_cpu.jit.archive import sources
from ort_sdk_cpu.jit.cache_folder import KernelFolders, build_lock
from ort_sdk_cpu.jit.compiler import code_files
from ort_sdk_cpu.jit.elf import linker, loader
from ort_sdk_cpu.jit.elf.image import LinkError, can_link
from ort_sdk_cpu.platform import libraries

pytestmark = pytest.mark.skipif(not libraries.numba().is_usable, reason=str(libraries.numba()))
needs_images = pytest.mark.skipif(not can_link(), reason="images are for Linux on x86-64")

SUM = """
define i64 @total(i64 %a, i64 %b) {
  %sum = add i64 %a, %b
  ret i64 %sum
}
"""
EXTERNAL = """
declare ptr @memset(ptr, i32, i64)
declare double @sin(double)
@count = internal global i64 40
@numbers = internal constant [3 x double] [double 1.0, double 2.0, double 3.0]
@where = internal global ptr @numbers
define i64 @total(ptr %bytes, i64 %size) {
  %done = call ptr @memset(ptr %bytes, i32 7, i64 %size)
  %before = load i64, ptr @count
  %after = add i64 %before, 1
  store i64 %after, ptr @count
  %table = load volatile ptr, ptr @where
  %place = getelementptr double, ptr %table, i64 %size
  %number = load double, ptr %place
  %sine = call double @sin(double %number)
  %thousands = fmul double %sine, 1000.0
  %rounded = fptosi double %thousands to i64
  %sum = add i64 %after, %rounded
  ret i64 %sum
}
"""
UNKNOWN = "declare void @nobody_has_this()\ndefine void @total() {\n  call void @nobody_has_this()\n  ret void\n}"
OF_THREADS = "@own = thread_local global i64 1\ndefine i64 @total() {\n  %x = load i64, ptr @own\n  ret i64 %x\n}"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_folder, "kernel_folders", lambda: KernelFolders((tmp_path,), tmp_path))
    return tmp_path


@pytest.fixture
def function(folder):
    """Address of a text's function ``total`` in a new store, as ctypes calls it; counts what is built."""

    def make(text, *types, name="total"):
        def build():
            make.builds += 1
            return "total", llvm.emit_object(text)

        code_store._store.cache_clear()
        return ctypes.CFUNCTYPE(ctypes.c_int64, *types)(code_store.code_address(name, build))

    make.builds = 0
    yield make
    code_store._store.cache_clear()


def mapped(text):
    """Lines of the process's memory map that name something."""
    return [line for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines() if text in line]


LONGS = (ctypes.c_int64, ctypes.c_int64)


def test_functions_are_built_once_and_kept(function, folder):
    for _ in range(3):
        assert function(SUM, *LONGS)(40, 2) == 42
    assert function.builds == 1
    assert len(list(folder.glob("total.*"))) == 1


@needs_images
def test_images_are_mapped_from_their_files(function, folder):
    assert function(SUM, *LONGS)(40, 2) == 42
    (line,) = mapped(str(folder / "total.image"))
    assert "r-xp" in line


@needs_images
def test_other_libraries_functions_and_own_variables(function, folder):
    sines = [int(np.sin(number) * 1000) for number in (1.0, 2.0)]
    for _ in range(2):
        call, place = function(EXTERNAL, ctypes.c_void_p, ctypes.c_int64), ctypes.create_string_buffer(2)
        assert call(ctypes.addressof(place), 1) == 41 + sines[1]
        assert place.raw == b"\7\0"
        assert call(ctypes.addressof(place), 0) == 42 + sines[0]
    assert function.builds == 1
    kinds = [line.split()[1] for line in mapped(str(folder / "total.image"))]
    assert sorted(set(kinds)) == ["r-xp", "rw-p"]


@needs_images
@pytest.mark.parametrize("damage", ["shorter", "flipped", "empty", "other"])
def test_damaged_and_foreign_images_are_built_again(function, folder, damage):
    function(SUM, *LONGS)
    path = folder / "total.image"
    content = bytearray(path.read_bytes())
    if damage == "other":
        path = folder / "another.image"
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
    path.unlink(missing_ok=True)
    path.write_bytes({"shorter": content[:-1], "empty": b""}.get(damage, content))
    assert function(SUM, *LONGS, name=path.stem)(40, 2) == 42
    assert function.builds == 2
    assert function(SUM, *LONGS, name=path.stem)(1, 2) == 3
    assert function.builds == 2


@needs_images
@pytest.mark.parametrize(("text", "types"), [(SUM, LONGS), (EXTERNAL, LONGS)])
def test_folders_that_execute_nothing(function, folder, monkeypatch, text, types):
    expected = function(text, *types)
    kept, bytes_ = loader._map, ctypes.create_string_buffer(2)
    arguments = (40, 2) if text is SUM else (ctypes.addressof(bytes_), 1)
    expected = expected(*arguments)

    def refuse_files(size, protection, flags, file, offset=0):
        if file >= 0:
            raise PermissionError(1, "noexec")
        return kept(size, protection, flags, file, offset)

    before = len(mapped(str(folder)))
    monkeypatch.setattr(loader, "_map", refuse_files)
    assert function(text, *types)(*arguments) == expected
    assert function.builds == 1
    assert len(mapped(str(folder))) == before


@needs_images
def test_systems_that_execute_no_memory_of_ours(function, folder, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "refused")

    monkeypatch.setattr(loader, "_map", refuse)
    for _ in range(2):
        assert function(SUM, *LONGS)(40, 2) == 42
    assert function.builds == 1
    assert (folder / "total.o").is_file()


def test_other_machines_keep_object_files(function, folder, monkeypatch):
    monkeypatch.setattr(code_files, "can_link", lambda: False)
    monkeypatch.setattr(llvm, "can_link", lambda: False)
    for _ in range(2):
        assert function(SUM, *LONGS)(40, 2) == 42
    assert function.builds == 1
    assert [path.name for path in folder.glob("total*")] == ["total.o"]
    (folder / "total.o").write_bytes((folder / "total.o").read_bytes()[:-1])
    assert function(SUM, *LONGS)(40, 2) == 42
    assert function.builds == 2


def test_without_a_folder(function, monkeypatch):
    monkeypatch.setattr(cache_folder, "kernel_folders", lambda: KernelFolders((), None))
    assert function(SUM, *LONGS)(40, 2) == 42


@needs_images
def test_functions_that_no_library_has(function):
    with pytest.raises(LinkError, match="nobody_has_this"):
        function(UNKNOWN)


@needs_images
def test_what_images_do_not_have():
    with pytest.raises(LinkError, match="thread-local variables"):
        linker.link(llvm.emit_object(OF_THREADS), "total", 0)
    with pytest.raises(LinkError, match="no function 'other'"):
        linker.link(llvm.emit_object(SUM), "other", 0)
    with pytest.raises(ValueError, match="ELF"):
        linker.link(b"MZ" * 100, "total", 0)


WARM = """
import logging, sys
logging.basicConfig()
logging.getLogger("ort_sdk.cpu").setLevel(logging.INFO)
import numpy as np
from ort_sdk_cpu.jit.task import TaskCall
x = np.random.default_rng(0).standard_normal((50, 131)).astype(np.float32)
out = np.empty_like(x)
TaskCall("normalization.rows", "softmax", (x, out, *x.shape), 2).run()
e = np.exp(x.astype(np.float64)); assert abs(out - e / e.sum(1, keepdims=True)).max() < 1e-6
import onnx, ort_sdk
from onnx import helper
operators = [("Abs", "x", "s"), ("Sqrt", "s", "m"), ("Add", "m x", "y")]
nodes = [helper.make_node(op_type, inputs.split(), [output]) for op_type, inputs, output in operators]
value = lambda name: helper.make_tensor_value_info(name, 1, [50, 131])
graph = helper.make_graph(nodes, "g", [value("x")], [value("y")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
expected = np.sqrt(abs(x.astype(np.float64))) + x
for _ in range(60000):  # providers compile for a program that has run for 50 ms: some 10,000 runs of a fast processor
    assert abs(session.run(None, {"x": x})[0] - expected).max() < 1e-6
lines = [line.split() for line in open("/proc/self/maps")]
images = {line[-1].rsplit("/", 1)[-1].split("_")[0].split("-")[0]: line[1] for line in lines if line[-1].endswith(".image")}
print(sorted(images.items()), [name for name in ("numba", "llvmlite") if name in sys.modules])
"""


@needs_images
def test_warm_processes_load_no_compiler(tmp_path):
    environment = os.environ | {"ORT_SDK_CPU_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-P", "-c", WARM]
    first, warm = (subprocess.run(command, env=environment, capture_output=True, text=True, check=False) for _ in range(2))
    assert (first.returncode, warm.returncode) == (0, 0), first.stderr + warm.stderr
    assert "compiled CPU kernel 2, normalization.rows-softmax" in first.stderr
    assert warm.stderr == ""
    assert warm.stdout.strip() == "[('chain', 'r-xp'), ('normalization.rows', 'r-xp'), ('run', 'r-xp')] []"


def _is_free(path):
    """Whether nobody holds a file's lock."""
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_thread_that_builds_may_build_more(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    with build_lock(one):
        with build_lock(one), build_lock(other):
            assert not _is_free(tmp_path / "one.lock")
            assert not _is_free(tmp_path / "other.lock")
        assert not _is_free(tmp_path / "one.lock")
        assert not (tmp_path / "other.lock").exists()
    assert list(tmp_path.iterdir()) == []


BUILDING = """
import sys, time
from pathlib import Path
from ort_sdk_cpu.jit.cache_folder import build_lock
path = Path(sys.argv[1])
with build_lock(path):
    if path.exists():
        print("found")
    else:
        print("building", flush=True)
        sys.stdin.readline()
        path.touch()
"""


def _start_building(path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-P", "-c", BUILDING, str(path)], **pipes)


def test_processes_build_different_functions_at_the_same_time_and_each_once(tmp_path):
    first, second = _start_building(tmp_path / "one"), _start_building(tmp_path / "other")
    assert [child.stdout.readline() for child in (first, second)] == ["building\n"] * 2
    third = _start_building(tmp_path / "one")
    for child in (first, second):
        child.communicate("\n")
    assert third.communicate()[0] == "found\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]


def file_name(monkeypatch, package, module, name):
    """Name of a task's file as a new process has it, for sources in some folder."""
    with monkeypatch.context() as patch:
        patch.setattr(sources, "PACKAGE", package)
        sources.forget()
        found = task_code._file_name(module, name)
    sources.forget()
    return found


@pytest.mark.parametrize("changed", ["compiled/own.py", "compiled/sibling.py", "arguments/own.py", "../shared/arguments/axes.py"])
def test_code_is_made_anew_when_a_source_of_it_changes(tmp_path, monkeypatch, changed):
    files = {
        "compiled/own.py": "from ort_sdk_cpu.family.arguments.own import Own\nfrom .sibling import helper\n",
        "compiled/sibling.py": "",
        "arguments/own.py": "from ort_sdk_cpu.shared.arguments.axes import Axes\n",
        "../shared/arguments/axes.py": "",
    }
    for path, text in files.items():
        file = (tmp_path / "family" / path).resolve()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    before = file_name(monkeypatch, tmp_path, "family.own", "total")
    assert file_name(monkeypatch, tmp_path, "family.own", "total") == before
    with (tmp_path / "family" / changed).open("a", encoding="utf-8") as file:
        file.write("# another order of fields\n")
    assert file_name(monkeypatch, tmp_path, "family.own", "total") != before
