"""What the wheels carry: built from a copy of the checkout, as a user's pip builds them."""

import configparser
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROVIDERS = sorted(path.parent for path in ROOT.glob("providers/*/pyproject.toml"))
DISTRIBUTIONS = [ROOT, *PROVIDERS]
NAMES = ["ort-sdk", *(f"ort-sdk-{folder.name}" for folder in PROVIDERS)]
JUNK = ("tests/", "__pycache__", ".pyc", ".so.tmp", ".orig", ".rej", "conftest.py", ".ipynb", ".DS_Store")


def project(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def source_of(folder: Path) -> Path:
    return ROOT / "ort_sdk" if folder == ROOT else folder / "src" / f"ort_sdk_{folder.name}"


def copied(folder: Path, target: Path) -> Path:
    """A copy to build from: a build in the checkout would pick up, and leave behind, ``build/`` and ``*.egg-info``."""
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist")
    source = source_of(folder)
    shutil.copytree(source, target / source.relative_to(folder), ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(folder / name, target)
    if (folder / "build_backend").is_dir():
        shutil.copytree(folder / "build_backend", target / "build_backend", ignore=ignored)
        shutil.copy(folder / "MANIFEST.in", target)
    (target / "tests").mkdir()
    (target / "tests" / "test_nothing.py").touch()
    return target


@pytest.fixture(scope="module", params=DISTRIBUTIONS, ids=NAMES)
def wheel(request, tmp_path_factory):
    folder = request.param
    source = copied(folder, tmp_path_factory.mktemp("source"))
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    # Machine code takes minutes to compile; a test of its own has some.
    environment = os.environ | {"ORT_SDK_CPU_BUILD_KERNELS": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=out)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = out.glob("*-py3-none-any.whl")
    with zipfile.ZipFile(path) as archive:
        yield folder, archive


def metadata(archive: zipfile.ZipFile):
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(archive.read(name).decode())


def test_contains_every_source_and_data_file(wheel):
    folder, archive = wheel
    package = source_of(folder)
    expected = {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert f"{package.name}/py.typed" in expected
    assert expected <= set(archive.namelist())


def test_carries_no_junk(wheel):
    folder, archive = wheel
    package = source_of(folder).name
    names = archive.namelist()
    assert [name for name in names if any(part in name for part in JUNK)] == []
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {package}


def test_metadata_names_licence_and_version(wheel):
    folder, archive = wheel
    found = metadata(archive)
    assert found["Name"] == project(folder)["name"]
    assert found["Version"] == project(folder)["version"]
    assert found["License-Expression"] == "MIT"
    assert found["License-File"] == "LICENSE"
    assert found["Requires-Python"] == ">=3.11"


def test_entry_point_names_what_the_wheel_carries(wheel):
    folder, archive = wheel
    (path,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
    parser = configparser.ConfigParser()
    parser.read_string(archive.read(path).decode())
    group, name = ("console_scripts", "ort-sdk") if folder == ROOT else ("ort_sdk.providers", folder.name)
    module = parser[group][name].split(":")[0].replace(".", "/")
    assert {f"{module}.py", f"{module}/__init__.py"} & set(archive.namelist())
