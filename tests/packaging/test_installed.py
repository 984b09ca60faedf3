"""The tests test what is installed, and importing it is cheap."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAZY = ["PIL", "cuda", "google.protobuf", "ml_dtypes", "numba", "onnx", "onnxruntime", "pyopencl", "rich", "scipy"]
UNDER_TEST_RUNNER = bool(os.environ.get("CI") or os.environ.get("TOX_ENV_DIR"))


def in_fresh_interpreter(code: str, folder: Path) -> str:
    """What ``code`` prints, run outside the checkout and without the caller's paths."""
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_root_has_no_conftest():
    """One there would put the checkout on the path, before the installed package."""
    assert not (ROOT / "conftest.py").exists()


@pytest.mark.skipif(not UNDER_TEST_RUNNER, reason="a checkout may be tested while it is edited; CI and tox test the wheel")
@pytest.mark.parametrize("package", ["ort_sdk", "ort_sdk_cpu"])
def test_tests_run_against_the_installed_package(package):
    site_packages = Path(sysconfig.get_paths()["purelib"]).resolve()
    found = Path(__import__(package).__file__).resolve()
    assert found.is_relative_to(site_packages), f"{package} is taken from {found}: run the tests with `python -P -m pytest`"


@pytest.mark.parametrize("module", ["ort_sdk", "ort_sdk.api", "ort_sdk_cpu"])
def test_import_is_cheap(module, tmp_path):
    code = f"import json, sys, {module}; print(json.dumps(sorted(name for name in {LAZY!r} if name in sys.modules)))"
    assert json.loads(in_fresh_interpreter(code, tmp_path)) == []


def test_public_names_exist(tmp_path):
    code = "import ort_sdk; print(all(getattr(ort_sdk, name) is not None for name in ort_sdk.__all__))"
    assert in_fresh_interpreter(code, tmp_path).strip() == "True"
