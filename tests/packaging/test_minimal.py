"""A process that runs models in ORT format needs NumPy, pluggy and ml_dtypes; what else is missing says so when it is needed.

Runs with these packages and pytest alone, too: in the tox environment ``minimal``, where nothing has to be hidden.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path(__file__).with_name("data") / "small.ort"
"""MatMul, an If with two bodies that read outer values, Relu; written by onnxruntime 1.31.1."""
NOT_NEEDED = ("PIL", "flatbuffers", "google", "google.protobuf", "onnx", "rich")
NOT_FOR_SMALL_MODELS = ("_cffi_backend", "cffi", "cuda", "llvmlite", "numba", "pyopencl", "scipy")
IS_MINIMAL = "minimal" in {os.environ.get("TOX_ENV_NAME"), os.environ.get("ORT_SDK_TEST_INSTALLATION")}
HIDE = f"import sys; sys.modules.update(dict.fromkeys({NOT_NEEDED!r}))\n"
RUN = f"""
import numpy as np, ort_sdk
x = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
weight = np.arange(9, dtype=np.float32).reshape(3, 3)
session = ort_sdk.InferenceSession({str(MODEL)!r})
for flag in (True, False, True):
    (result,) = session.run(None, {{"x": x, "flag": np.array(flag)}})
    np.testing.assert_allclose(result, np.maximum(x @ weight + (x if flag else -x), 0))
"""
SAVE = f"""
import ort_sdk
options = ort_sdk.SessionOptions()
options.optimized_model_filepath = "saved.%s"
ort_sdk.InferenceSession({str(MODEL)!r}, options)
"""
READ_IMAGE = """
from pathlib import Path
from ort_sdk.api import NodeArg
from ort_sdk.cli.inputs.images import ImageOptions, image_tensor
image_tensor(Path("p.png"), NodeArg("image", "tensor(float)", (1, 3, 8, 8)), ImageOptions())
"""
NARROW_TYPE = "sys.modules['ml_dtypes'] = None; from ort_sdk.api import TensorElementType; TensorElementType.BFLOAT16.numpy_dtype"
MADE_WITHOUT = {
    "flatbuffers": (SAVE % "ort", "writing a model in ORT format"),
    "onnx": (SAVE % "onnx", "writing a model in ONNX format"),
    "pillow": (READ_IMAGE, "reading image 'p.png'"),
    "ml_dtypes": (NARROW_TYPE, "element type BFLOAT16"),
}
"""Package → code that needs it, and words of the error."""


def in_fresh_process(code, folder):
    return subprocess.run([sys.executable, "-P", "-c", HIDE + code], capture_output=True, text=True, check=False, cwd=folder)


def printed(code, folder):
    done = in_fresh_process(code, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not IS_MINIMAL, reason="elsewhere packages are hidden, not missing")
@pytest.mark.parametrize("module", [*NOT_NEEDED, *NOT_FOR_SMALL_MODELS])
def test_nothing_else_is_installed(module):
    assert importlib.util.find_spec(module.partition(".")[0]) is None


def test_model_runs(tmp_path):
    printed(RUN, tmp_path)


def test_small_model_loads_no_large_library(tmp_path):
    """Whatever the CPU provider could use; nothing is hidden here."""
    names = NOT_NEEDED + NOT_FOR_SMALL_MODELS
    code = RUN + f"import json, sys; print(json.dumps([name for name in {names!r} if sys.modules.get(name)]))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_no_library_of_onednn_is_mapped(tmp_path):
    code = RUN + "print('libdnnl' in open('/proc/self/maps').read())"
    if not Path("/proc/self/maps").exists():
        pytest.skip("the system does not show what is mapped")
    assert printed(code, tmp_path).strip() == "False"


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL"])
def test_every_optimizer_level_runs(level, tmp_path):
    options = f"""
import ort_sdk
options = ort_sdk.SessionOptions()
options.graph_optimization_level = ort_sdk.GraphOptimizationLevel.{level}
"""
    printed(options + RUN.replace(f"{str(MODEL)!r})", f"{str(MODEL)!r}, options)"), tmp_path)


@pytest.mark.parametrize("package", MADE_WITHOUT)
def test_missing_package_is_named(package, tmp_path):
    code, need = MADE_WITHOUT[package]
    done = in_fresh_process(code, tmp_path)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ort_sdk.api.errors.Fail")
    assert f"{need} needs the package '{package}', which is missing here" in last
    assert last.endswith(f"pip install {package}")
    assert list(tmp_path.iterdir()) == []


def test_error_of_a_node_without_kernel_says_where_definitions_are(tmp_path):
    code = f"""
import ort_sdk, ort_sdk.api
from ort_sdk.api import KernelRegistry
find = KernelRegistry.candidates
KernelRegistry.candidates = lambda self, *operator: [] if "Relu" in operator else find(self, *operator)
try:
    ort_sdk.InferenceSession({str(MODEL)!r})
except ort_sdk.api.NoKernelError as error:
    print(error)
"""
    text = printed(code, tmp_path)
    assert "Could not find an implementation for Relu" in text
    assert text.strip().endswith("needs the package 'onnx', missing here: pip install onnx")


def test_commands_print_without_rich(tmp_path):
    code = """
from ort_sdk.cli.output import print_table, progress
sys.stdout.isatty = sys.stderr.isatty = lambda: True
with progress('waits'):
    print_table(['name', 'size'], [['w', 12]])
"""
    assert printed(code, tmp_path).splitlines() == ["name  size", "w     12"]


@pytest.mark.parametrize("package", ["numpy", "pluggy"])
def test_command_names_a_missing_package_of_the_host(package, tmp_path):
    done = in_fresh_process(
        f"sys.modules[{package!r}] = None; from ort_sdk.cli import main; sys.exit(main(['--version']))", tmp_path
    )
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("ort-sdk: error: ")
    assert done.stderr.endswith(f"pip install {package}\n")


def test_page_lists_what_is_needed():
    """The dependency group, the page and the host's dependencies say the same."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = project["dependency-groups"]["minimal"]
    assert set(needed) <= set(project["project"]["dependencies"])
    page = (ROOT / "docs" / "how-to" / "install-the-minimal-runtime.md").read_text(encoding="utf-8")
    names = " ".join(requirement.partition(">=")[0] for requirement in needed)
    assert f"pip install {names}\n" in page
