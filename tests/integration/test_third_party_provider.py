"""A provider from outside: built, installed, found by its entry point, used, and put through the kit."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "third_party_provider"
SETUPTOOLS = tuple(int(part) for part in importlib.metadata.version("setuptools").split(".")[:1])

pytestmark = pytest.mark.skipif(SETUPTOOLS < (71,), reason="this setuptools builds no wheels on its own: install group test")

USE_IT = """
import numpy as np, onnx, ort_sdk
from onnx import helper
x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xy")
nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Relu", ["b"], ["y"])]
graph = helper.make_graph(nodes, "g", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
session = ort_sdk.InferenceSession(model.SerializeToString(), providers=["ExampleExecutionProvider"])
for _ in range(3):
    (result,) = session.run(None, {"x": np.float32([-1, 2, -3])})
    assert result.tolist() == [0, 0, 0]
print({row.op_type: row.provider for row in session.placements()})
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Environment of processes in which the example is installed."""
    source = tmp_path_factory.mktemp("source") / "example"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    target = tmp_path_factory.mktemp("site")
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    run([sys.executable, "-m", "pip", "install", "--quiet", *offline, "--target", str(target), str(source)], target, os.environ)
    paths = [str(target), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run(command, folder, environment):
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_discovered(installed, tmp_path):
    report = json.loads(run([sys.executable, "-P", "-m", "ort_sdk", "providers", "--json"], tmp_path, installed))
    (row,) = [row for row in report["providers"] if row["entry_point"] == "example-npu"]
    assert row["state"] == "loaded"
    assert row["distribution"] == "ort-sdk-example-npu"
    assert row["devices"] == ["example-npu:0"]


def test_it_computes(installed, tmp_path):
    placed = run([sys.executable, "-P", "-c", USE_IT], tmp_path, installed)
    assert "'Abs': 'ExampleExecutionProvider'" in placed
    assert "'Relu': 'ExampleExecutionProvider'" in placed
    assert "'Neg': 'CPUExecutionProvider'" in placed


def test_its_own_tests_pass(installed, tmp_path):
    output = run([sys.executable, "-P", "-m", "pytest", "-q", str(EXAMPLE / "tests")], EXAMPLE, installed)
    assert passed(output) > 50


def test_the_kit_runs_without_a_test_file(installed, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-P", "-m", "pytest", "--ort-provider", "example-npu", "--pyargs", "ort_sdk.testing"]
    output = run(command, tmp_path, installed)
    assert "ort_sdk: API version 1, provider ExampleExecutionProvider (ort-sdk-example-npu 1.0.0)" in output
    assert passed(output) > 50


def passed(output):
    return int(re.search(r"(\d+) passed", output)[1])
