"""Wheels of the CPU provider with machine code: built by its backend, found by the installed package."""

import importlib.util
import os
import platform
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROVIDER = ROOT / "providers" / "cpu"
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="only wheels for Linux on x86-64 have machine code"
)


IMPORTS = """
import importlib
import ort_sdk
from ort_sdk_cpu.jit.archive.contents import compiled_modules
for name in (*compiled_modules(), "fusion.elementwise.math_library"):
    importlib.import_module(f"ort_sdk_cpu.{name}")
print(ort_sdk.__file__)
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """What a source distribution of the checkout has."""
    out = tmp_path_factory.mktemp("sdist")
    done = build(PROVIDER, out, "--sdist")
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(out, filter="data")
    (folder,) = (path for path in out.iterdir() if path.is_dir())
    return folder


def build(folder, out, *options, **environment):
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), *options, str(folder)]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False, cwd=out)


def backend():
    spec = importlib.util.spec_from_file_location("kernels_backend", PROVIDER / "build_backend" / "kernels_backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_source_distribution_has_what_compiling_needs(source):
    """Beside the provider's sources, those of the host; nothing of it stays in the checkout."""
    assert (source / "build_backend" / "host" / "ort_sdk" / "api" / "kernel.py").is_file()
    assert not (PROVIDER / "build_backend" / "host").exists()
    command = [sys.executable, "-P", "-c", IMPORTS]
    path = os.pathsep.join((str(source / "src"), str(source / "build_backend" / "host")))
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(source)


def test_a_wheel_with_machine_code(source, tmp_path):
    """It has the archives, and a tag of the platform; the sources are left as they were."""
    archives = tmp_path / "archives"
    archives.mkdir()
    for target in ("avx2", "amx"):
        (archives / f"x86_64-linux-{target}.kernels").write_bytes(target.encode())
    own = {"ORT_SDK_CPU_BUILD_KERNELS": "avx2, amx", "ORT_SDK_CPU_BUILD_ARCHIVES": str(archives)}
    done = build(source, tmp_path, "--wheel", **own)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*.whl")
    assert path.name.endswith("-py3-none-manylinux_2_17_x86_64.whl")
    with zipfile.ZipFile(path) as wheel:
        found = {name: wheel.read(name) for name in wheel.namelist() if name.endswith(".kernels")}
    assert found == {f"ort_sdk_cpu/kernels/x86_64-linux-{target}.kernels": target.encode() for target in ("avx2", "amx")}
    assert not (source / "src" / "ort_sdk_cpu" / "kernels").exists()


def test_unknown_targets_are_refused(source, tmp_path):
    done = build(source, tmp_path, "--wheel", ORT_SDK_CPU_BUILD_KERNELS="avx3")
    assert done.returncode
    assert "ORT_SDK_CPU_BUILD_KERNELS names avx3; it takes 0, 1, or any of portable, avx2" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("environment", "compiles"),
    [
        ({"_PYPROJECT_HOOKS_BUILD_BACKEND": "x"}, True),
        ({"_PYPROJECT_HOOKS_BUILD_BACKEND": "x", "PIP_BUILD_TRACKER": "x"}, False),
        ({}, False),
        ({"ORT_SDK_CPU_BUILD_KERNELS": "1", "PIP_BUILD_TRACKER": "x"}, True),
        ({"_PYPROJECT_HOOKS_BUILD_BACKEND": "x", "ORT_SDK_CPU_BUILD_KERNELS": "0"}, False),
    ],
    ids=["build", "pip", "other installers", "asked for", "forbidden"],
)
def test_who_compiles(monkeypatch, environment, compiles):
    for name in ("_PYPROJECT_HOOKS_BUILD_BACKEND", "PIP_BUILD_TRACKER", "ORT_SDK_CPU_BUILD_KERNELS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    module = backend()
    assert bool(module._targets()) == compiles
    assert any("numba" in requirement for requirement in module.get_requires_for_build_wheel()) == compiles


def test_targets_are_those_of_the_package():
    from ort_sdk_cpu.platform.targets import TARGETS

    assert tuple(target.name for target in TARGETS) == backend().TARGETS


@pytest.mark.slow
def test_the_whole_wheel(tmp_path):
    """As it is released: all kernels of all targets, in an environment of its own, and small enough for an index."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_SDK_CPU_BUILD_KERNELS"}
    command = [sys.executable, "-m", "build", "--outdir", str(tmp_path), str(PROVIDER)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (path,) = tmp_path.glob("*.whl")
    assert path.stat().st_size < 25e6
    with zipfile.ZipFile(path) as wheel:
        assert sum(name.endswith(".kernels") for name in wheel.namelist()) == len(backend().TARGETS)
