"""The index of the operator set: current, and enough to keep a session from importing what it does not use."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ort_sdk.opset.families import DeclaredOperators

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["generate_opset_index.py", "generate_operator_schemas.py"])
def test_generated_data_is_current(script):
    result = subprocess.run([sys.executable, ROOT / "tools" / script, "--check"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_session_imports_only_the_operators_it_uses():
    model = ROOT / "examples" / "digits" / "digits.onnx"
    code = (
        "import json, sys, ort_sdk\n"
        f"ort_sdk.InferenceSession({str(model)!r}, providers=['CPUExecutionProvider'])\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    imported = json.loads(result.stdout)
    assert "ort_sdk.opset.nn.conv" in imported
    assert [name for name in imported if name.startswith(("ort_sdk.opset.ml.", "ort_sdk.opset.contrib.attention"))] == []
    assert "onnx" not in imported


def test_declared_operators_are_a_set():
    every, hosts = DeclaredOperators(on_host=True), DeclaredOperators(on_host=False, exclude=["Abs"])
    rows = [line.split("\t") for line in (ROOT / "ort_sdk" / "opset" / "data" / "index.txt").read_text().splitlines()]
    wanted = {(domain, op_type) for domain, op_type, _, where in rows if where == "any" and op_type != "Abs"}
    assert len(every) == len(rows) == len(set(every))
    assert hosts == wanted
    assert hosts & {("", "Add"), ("", "Abs")} == {("", "Add")}
    assert hosts | {("other", "Add")} == wanted | {("other", "Add")}
    for name in (("", "Abs"), ("", "Ad"), ("ai.onnx", "Add"), ("", "Add\tmath.arithmetic"), ("", "x\n\tAdd"), ("", "")):
        assert name not in hosts
