"""pytest's plugin of the kit: cheap to have, silent until asked, and clear about what it tests."""

import json
import subprocess
import sys

import pytest

from ort_sdk.testing.xfails import find_file, read_expected_failures

HEAVY = ["numpy", "onnx", "ort_sdk.api", "ort_sdk.session", "pytest"]


def test_importing_it_imports_nothing_else(tmp_path):
    code = (
        f"import json, sys, ort_sdk.testing.pytest_plugin;print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(done.stdout) == []


def run_kit(folder, *arguments):
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-P", "-m", "pytest", *arguments, "--pyargs", "ort_sdk.testing", "-k", "loaded or devices"]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_header_and_outcome_for_an_installed_provider(tmp_path):
    done = run_kit(tmp_path, "--ort-provider", "cpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "API version 1, provider CPUExecutionProvider (ort-sdk-cpu" in done.stdout
    assert "devices cpu:0" in done.stdout


def test_a_provider_that_is_not_installed_fails(tmp_path):
    done = run_kit(tmp_path, "--ort-provider", "abacus")
    assert done.returncode == 1
    assert "execution provider 'abacus' is not installed" in done.stdout


def test_without_a_name_everything_is_skipped(tmp_path):
    done = run_kit(tmp_path, "-rs")
    assert done.returncode == 0
    assert "pass --ort-provider NAME" in done.stdout


def test_expected_failures_are_strict(tmp_path):
    (tmp_path / "xfails.txt").write_text("test_it_is_loaded: it is loaded, so this line is wrong\n")
    done = run_kit(tmp_path, "--ort-provider", "cpu", "--ort-xfails", "xfails.txt")
    assert done.returncode == 1
    assert "XPASS(strict)" in done.stdout


@pytest.mark.parametrize("line", ["test_a", "test_a: short", "test_a[: a reason long enough", "a b: a reason long enough"])
def test_lines_without_test_or_reason_are_refused(tmp_path, line):
    path = tmp_path / "xfails.txt"
    path.write_text(f"# comment\n\n{line}\n")
    with pytest.raises(ValueError, match=r"xfails.txt:3: expected 'test_name\[parameter\]: reason'"):
        read_expected_failures(path)


def test_a_test_listed_twice_is_refused(tmp_path):
    path = tmp_path / "xfails.txt"
    path.write_text("test_a[b]: a reason long enough\n" * 2)
    with pytest.raises(ValueError, match="listed twice"):
        read_expected_failures(path)


def test_the_file_is_found_from_the_folder_upwards(tmp_path):
    (tmp_path / "tests" / "deep").mkdir(parents=True)
    (tmp_path / "tests" / "xfails.txt").touch()
    assert find_file("tests/xfails.txt", tmp_path / "tests" / "deep") == tmp_path / "tests" / "xfails.txt"
    with pytest.raises(FileNotFoundError, match=r"no file .other\.txt."):
        find_file("other.txt", tmp_path)
