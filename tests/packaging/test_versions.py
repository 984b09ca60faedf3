"""One version number for all distributions until the contract reaches 1.0."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROVIDERS = sorted(path.parent for path in ROOT.glob("providers/*/pyproject.toml"))


def project(folder: Path) -> dict:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


VERSION = project(ROOT)["version"]


def test_there_are_providers():
    assert (ROOT / "providers" / "cpu") in PROVIDERS


@pytest.mark.parametrize("folder", PROVIDERS, ids=lambda folder: folder.name)
def test_provider_has_the_hosts_version_and_requires_it(folder):
    minor = ".".join(VERSION.split(".")[:2])
    assert project(folder)["version"] == VERSION
    assert f"ort-sdk=={minor}.*" in project(folder)["dependencies"]
    assert project(folder)["requires-python"] == project(ROOT)["requires-python"]


@pytest.mark.parametrize("folder", PROVIDERS, ids=lambda folder: folder.name)
def test_provider_carries_the_licence(folder):
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("folder", [ROOT, *PROVIDERS], ids=lambda folder: folder.name)
def test_changelog_has_the_version(folder):
    assert f"## [{VERSION}]" in (folder / "CHANGELOG.md").read_text(encoding="utf-8")


def test_package_has_the_installed_version():
    import ort_sdk

    assert ort_sdk.__version__ == VERSION == importlib.metadata.version("ort-sdk")
