"""Installed distributions, beside what ``importlib.metadata`` finds."""

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ort_sdk.api.distributions import distributions, version_of

METADATA = "Metadata-Version: 2.1\nName: Some.Thing\nVersion: 1.5\n\nVersion: not this\n"


@pytest.fixture
def some_thing(tmp_path, monkeypatch):
    folder = tmp_path / "some_thing-1.5.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    (folder / "RECORD").write_text('some_thing/a.py,sha256=x,3\n"../../lib/odd, name.so",,\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_the_same_are_found_as_by_importlib():
    expected = {(each.metadata["Name"], each.version) for each in importlib.metadata.distributions()}
    assert {(each.name, each.version) for each in distributions()} == expected


@pytest.mark.parametrize("name", ["some-thing", "Some.Thing", "some_thing", "SOME--thing"])
def test_a_name_may_be_written_in_many_ways(some_thing, name):
    assert version_of(name) == importlib.metadata.version(name) == "1.5"


def test_files_are_listed(some_thing):
    (found,) = distributions("some-thing")
    root = some_thing.parent
    assert list(found.files()) == [root / "some_thing/a.py", root / "../../lib/odd, name.so"]
    assert found.name == "Some.Thing"


def test_the_first_on_the_path_counts(some_thing, tmp_path, monkeypatch):
    newer = tmp_path / "newer"
    folder = newer / "Some.Thing-2.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(METADATA.replace("1.5", "2.0"))
    monkeypatch.syspath_prepend(str(newer))
    assert [each.version for each in distributions("some-thing")] == ["2.0", "1.5"]
    assert version_of("some-thing") == "2.0"


def test_what_is_missing_has_no_version(some_thing):
    assert version_of("some-thing-else") == ""
    (some_thing / "METADATA").unlink()
    assert version_of("some-thing") == ""


def test_a_file_of_metadata(tmp_path, monkeypatch):
    (tmp_path / "some_thing-1.5.egg-info").write_text(METADATA)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert version_of("some-thing") == "1.5"


@pytest.mark.parametrize("folder", ["some_thing-1.5.dist-info", "EGG-INFO"])
def test_archives(tmp_path, monkeypatch, folder):
    archive = tmp_path / ("some_thing-1.5.egg" if folder == "EGG-INFO" else "some.zip")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(f"{folder}/{'PKG-INFO' if folder == 'EGG-INFO' else 'METADATA'}", METADATA)
        file.writestr(f"{folder}/entry_points.txt", "[group]\nname = module\n")
    monkeypatch.syspath_prepend(str(archive))
    (found,) = distributions("some-thing")
    assert found.version == "1.5"
    assert "name = module" in (found.read_text("entry_points.txt") or "")
    assert list(found.files()) == []


def test_finders_of_programs(tmp_path, monkeypatch, some_thing):
    class Finder(importlib.metadata.DistributionFinder):
        def find_spec(self, *_arguments):
            return None

        def find_distributions(self, _context=None):
            return iter([importlib.metadata.PathDistribution(some_thing)])

    monkeypatch.setattr(sys, "path", [str(tmp_path / "nothing")])
    assert version_of("some-thing") == ""
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    assert version_of("some-thing") == "1.5"


def test_importlib_metadata_stays_out():
    code = "import sys, ort_sdk.plugins as p; p.plugin_manager().provider_records(); print('importlib.metadata' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
