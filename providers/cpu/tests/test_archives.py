"""Archives of compiled kernels, as wheels carry them: kernels run from them without a compiler, and nothing damaged is run."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ort_sdk_cpu.jit.archive import sources
from ort_sdk_cpu.jit.archive.writer import content_entry, write_archive
from ort_sdk_cpu.platform import archives, libraries
from ort_sdk_cpu.platform.archives import ArchiveError, open_archive, write_content
from ort_sdk_cpu.platform.targets import TARGETS, machine_targets

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="archives are for Linux on x86-64"),
    pytest.mark.skipif(not libraries.numba().is_usable, reason=str(libraries.numba())),
]

TASKS = "normalization.rows.softmax"
CHOSEN = ("portable", "avx2", TARGETS[-1].name)
MACHINES = [target.name for target in machine_targets() if target.name in CHOSEN]

RUN = """
import logging, sys
from pathlib import Path
logging.basicConfig()
if sys.argv[2] == "without a compiler":
    class Blocker:
        def find_spec(self, name, *_):
            if name.partition(".")[0] in ("numba", "llvmlite"):
                raise ImportError(name)
    sys.meta_path.insert(0, Blocker())
from ort_sdk_cpu.platform import archives
archives.PACKAGED = Path(sys.argv[1])
import numpy as np
from ort_sdk_cpu.jit.task import TaskCall
x = np.random.default_rng(0).standard_normal((50, 131)).astype(np.float32)
out = np.empty_like(x)
TaskCall("normalization.rows", "softmax", (x, out, *x.shape), 2).run()
e = np.exp(x.astype(np.float64))
assert abs(out - e / e.sum(1, keepdims=True)).max() < 1e-6
print(sum(".kernels" in line for line in open("/proc/self/maps")), "numba" in sys.modules)
"""


def run(folder, *words, target, cache, code=RUN, **environment):
    own = {"ORT_SDK_CPU_ISA": target, "ORT_SDK_CPU_CACHE_DIR": str(cache), "HOME": "/nonexistent"}
    command = [sys.executable, "-P", "-c", code, str(folder), *words]
    return subprocess.run(command, env=os.environ | own | environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small archives, one of a target that the machine may not have."""
    made = tmp_path_factory.mktemp("kernels")
    for target in CHOSEN:
        path = made / f"x86_64-linux-{target}.kernels"
        command = [sys.executable, "-P", "-m", "ort_sdk_cpu.jit.build_archive", "--target", target, "--tasks", TASKS]
        command += ["--jobs", "1", "--output", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert path.stat().st_size
    return made


@pytest.fixture
def copied(folder, tmp_path):
    """A folder with a copy of the archive of a target of this machine; the target, and the copy's path."""
    target = MACHINES[-1]
    path = tmp_path / "copied" / f"x86_64-linux-{target}.kernels"
    path.parent.mkdir()
    path.write_bytes((folder / path.name).read_bytes())
    return target, path


@pytest.mark.parametrize("target", MACHINES)
def test_kernels_run_without_a_compiler(folder, tmp_path, target):
    """Mapped from the archive, by a user without a home, from a folder that nobody may write."""
    tmp_path.chmod(0o500)
    done = run(folder, "without a compiler", target=target, cache=tmp_path / "none")
    tmp_path.chmod(0o700)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    count, has_numba = done.stdout.split()
    assert int(count) >= 2
    assert has_numba == "False"


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="only root can take another user's place")
def test_all_users_run_what_the_package_brought(folder, tmp_path):
    """Mapped by another user than who made them. Sources are read before: Python itself may be where only root can read."""
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        for path in folder.iterdir():
            (Path(place) / path.name).write_bytes(path.read_bytes())
        warm = "import ort_sdk_cpu.jit.task, ort_sdk_cpu.jit.archive.lookup, ort_sdk_cpu.jit.archive.recorded\n"
        warm += "from ort_sdk_cpu.jit.extents.declaration import declaration_of\n"
        warm += "from ort_sdk_cpu.jit.task_code import _file_name\n_file_name('normalization.rows', 'softmax')\n"
        warm += "declaration_of('normalization.rows', 'softmax')\nimport os\nnp.random.default_rng(0)\nos.setuid(12345)\n"
        code = RUN.replace("import numpy as np\n", f"import numpy as np\n{warm}", 1)
        done = run(place, "without a compiler", target=MACHINES[-1], cache=tmp_path / "none", code=code)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert int(done.stdout.split()[0]) >= 2


def test_a_damaged_kernel_is_compiled_instead(copied, tmp_path):
    target, path = copied
    content = bytearray(path.read_bytes())
    content[-200:-100] = bytes(100)
    for page in range(1, len(content) // 4096 + 1):
        position = 4096 * page + 200
        if position < len(content):
            content[position] ^= 1
    path.write_bytes(content)
    done = run(path.parent, "", target=target, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    assert f"{path} is damaged" in done.stderr
    assert list((tmp_path / "cache").glob("*/normalization.rows-softmax-*.image"))
    done = run(path.parent, "", target=target, cache=tmp_path / "other", ORT_SDK_CPU_DISABLE="numba")
    assert done.returncode
    assert "cannot be compiled: numba: not used: disabled" in done.stderr
    assert "reinstall ort-sdk-cpu" in done.stderr


@pytest.mark.parametrize("damage", ["empty", "cut", "longer", "index", "format", "another target"])
def test_archives_that_cannot_be_used_are_named(copied, tmp_path, damage):
    target, path = copied
    content = path.read_bytes()
    if damage == "another target":
        other = next(name for name in CHOSEN if name != target)
        content = (path.parent / path.name).read_bytes().replace(f"linux-{target}".encode(), f"linux-{other}".encode(), 1)
        content = rewritten(content, other)
    changed = {
        "empty": b"",
        "cut": content[:-1],
        "longer": content + b"\0",
        "index": content[:100] + bytes([content[100] ^ 1]) + content[101:],
        "format": content[:32] + b"kernels9" + content[40:],
        "another target": content,
    }[damage]
    path.write_bytes(changed)
    code = """
import sys
from pathlib import Path
from ort_sdk_cpu.platform import archives
archives.PACKAGED = Path(sys.argv[1])
from ort_sdk_cpu.execution_provider import CpuExecutionProvider
print(*CpuExecutionProvider("CPUExecutionProvider").describe_environment(), sep="\\n")
"""
    done = run(path.parent, target=target, cache=tmp_path / "cache", code=code)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("archive ")]
    assert line.startswith(f"archive {path}: not used: {path} ")


def rewritten(content, target):
    """An archive of the same entries that says it is for another target."""
    file = io.BytesIO()
    write_content(file, {"target": f"x86_64-linux-{target}"}, {"one": content[-100:]})
    return file.getvalue()


def test_the_report_says_what_is_used(folder, tmp_path):
    code = """
import sys
from pathlib import Path
from ort_sdk_cpu.platform import archives
archives.PACKAGED = Path(sys.argv[1])
from ort_sdk_cpu.execution_provider import CpuExecutionProvider
provider = CpuExecutionProvider("CPUExecutionProvider")
print(*provider.describe_environment(), sep="\\n")
print(provider.compiles_on_demand)
"""
    lines = run(folder, target=MACHINES[-1], cache=tmp_path / "cache", code=code).stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("archive ")]
    assert f"{MACHINES[-1]}.kernels: " in line
    assert "kernels, made by numba" in line
    assert "other sources" not in line
    assert any(line.startswith(f"cache folder {tmp_path / 'cache'}") and line.endswith("read and written") for line in lines)
    assert lines[-1] == "False"


@pytest.mark.parametrize("changed", ["simd/math.py", "normalization/compiled/rows.py", "normalization/arguments/rows.py"])
def test_code_of_other_sources_is_not_found(tmp_path, monkeypatch, changed):
    import shutil

    import ort_sdk_cpu

    package = tmp_path / "ort_sdk_cpu"
    shutil.copytree(Path(ort_sdk_cpu.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "PACKAGE", package)
    sources.forget()
    before = sources.sources_digest("normalization.compiled.rows")
    (package / changed).write_text((package / changed).read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    sources.forget()
    after = sources.sources_digest("normalization.compiled.rows")
    monkeypatch.undo()
    sources.forget()
    assert before != after


def test_a_process_that_builds_for_others_runs_no_code(folder, tmp_path):
    target = CHOSEN[0]
    done = run(folder, "", target="", cache=tmp_path / "cache", ORT_SDK_CPU_TARGET=target)
    assert done.returncode
    assert f"ORT_SDK_CPU_TARGET is '{target}'" in done.stderr


def test_unknown_targets_are_refused(folder, tmp_path):
    done = run(folder, "", target="", cache=tmp_path / "cache", ORT_SDK_CPU_TARGET="avx3")
    assert "ORT_SDK_CPU_TARGET is 'avx3'; targets are portable, avx2, avx512_skx" in done.stderr


ENTRIES = dict([content_entry("one", b"1" * 10), content_entry("two", b"2" * 5000), content_entry("three", b"")])


def archive_of(path, content):
    path.write_bytes(content)
    return open_archive(path, lambda: os.open(path, os.O_RDONLY))


def written(tmp_path):
    path = tmp_path / archives.archive_name()
    write_archive(path, ENTRIES, {"compiler": "nobody"})
    return path


def test_entries_are_found_by_name(tmp_path):
    path = written(tmp_path)
    archive = archive_of(path, path.read_bytes())
    assert archive.count == len(ENTRIES)
    assert archive.description["compiler"] == "nobody"
    for name, content in ENTRIES.items():
        entry = archive.find(name)
        assert entry.offset % 4096 == 0
        assert path.read_bytes()[entry.offset : entry.offset + entry.size] == content
    assert archive.find("four") is None


def test_a_file_that_is_replaced_is_not_read(tmp_path):
    path = written(tmp_path)
    archive = archive_of(path, path.read_bytes())
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ArchiveError, match="was changed"):
        archive.opened()


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_nothing_outside_of_the_file_is_found(tmp_path_factory, data):
    """Whatever bytes are changed, with or without a digest that fits: an error, or places inside of the file."""
    path = written(tmp_path_factory.mktemp("archive"))
    content = bytearray(path.read_bytes())
    header_end = min(len(content), 400)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, header_end - 1))
        content[position] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    if data.draw(st.booleans()) and len(content) > 64:
        content[:32] = resealed(content)
    try:
        archive = archive_of(path, bytes(content))
        places = [archive.find(name) for name in ENTRIES]
    except ArchiveError:
        return
    assert all(place is None or 0 <= place.offset <= place.offset + place.size <= len(content) for place in places)


def resealed(content):
    """The digest that an attacker would write."""
    from ort_sdk_cpu.platform.digests import digest

    described, count = int.from_bytes(content[48:56], "little"), int.from_bytes(content[56:64], "little")
    end = min(len(content), 64 + described + 32 * count)
    return digest(bytes(content[32:64]), bytes(content[64:end]))


CHANGED = """
import os, sys
from pathlib import Path
from ort_sdk_cpu.platform import archives
archives.PACKAGED = Path(sys.argv[1])
from ort_sdk_cpu.jit.archive import recorded, sources
from ort_sdk_cpu.jit.task_code import _file_name
read = []
source = sources._source
def counted(path):
    read.append(path)
    return source(path)
sources._source = counted
package, how = Path(sys.argv[2]), sys.argv[3]
sources.PACKAGE = package
path = package / "simd" / "math.py"
status = path.stat()
if how == "longer":
    path.write_text(path.read_text() + "#")
elif how == "as long":
    path.write_text(path.read_text().replace("the", "teh", 1))
if how in ("as long, soon", "unchanged, listed"):
    # An installer has written the list of files, the last of them, two seconds after the archive.
    installed = archives.archives()[0].identity.modified + 2 * 10**9
    record = package.parent / "ort_sdk_cpu-0.1.0.dist-info" / "RECORD"
    record.parent.mkdir()
    record.touch()
    os.utime(record, ns=(installed, installed))
if how == "as long, soon":
    path.write_text(path.read_text().replace("the", "teh", 1))
    os.utime(path, ns=(status.st_atime_ns, installed + 10**9))
if how in ("longer", "unchanged", "unchanged, listed"):
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
if how == "as long":
    os.utime(path, ns=(status.st_atime_ns, archives.archives()[0].identity.modified + 2 * recorded.INSTALLATION_NS))
name = _file_name("normalization.rows", "softmax") + ".image"
print(archives.archives()[0].find(name) is not None, bool(read))
"""


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("unchanged", "True False"),
        ("unchanged, listed", "True False"),
        ("longer", "False True"),
        ("as long", "False True"),
        ("as long, soon", "False True"),
    ],
)
def test_sources_are_read_where_they_may_have_changed(copied, tmp_path, how, expected):
    """An installed package is looked at, not read; an edited source is never taken for the one that code was made from."""
    import shutil

    import ort_sdk_cpu

    target, path = copied
    package = tmp_path / "ort_sdk_cpu"
    shutil.copytree(Path(ort_sdk_cpu.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    done = run(path.parent, str(package), how, target=target, cache=tmp_path / "cache", code=CHANGED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected
