import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ort_sdk.cli import main

ROOT = Path(__file__).resolve().parents[2]


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys):
    """Runs the command in this process."""

    def run(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return Result(int(code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def shell():
    """Runs the command in a process of its own, in the repository's root."""

    def run(*arguments, **options):
        done = subprocess.run(
            [sys.executable, "-P", "-W", "error", "-m", "ort_sdk", *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            **options,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def digits():
    return ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def image():
    return ROOT / "examples" / "digits" / "images" / "digit_7_a.png"


@pytest.fixture
def save(tmp_path):
    """Writes a model of some nodes; values are ``(name, element type, shape)``."""

    def write(nodes, inputs, outputs, weights=None, metadata=None, domains=()):
        graph = helper.make_graph(
            nodes,
            "tested",
            [helper.make_tensor_value_info(*value) for value in inputs],
            [helper.make_tensor_value_info(*value) for value in outputs],
            [onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
        )
        imports = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        helper.set_model_props(model, metadata or {})
        path = tmp_path / "model.onnx"
        onnx.save(model, path)
        return path

    return write


@pytest.fixture
def identity(save):
    """Writes a model that gives its one input ``x`` back as ``y``."""

    def write(element_type=TensorProto.FLOAT, shape=(2, 2), metadata=None):
        node = helper.make_node("Identity", ["x"], ["y"])
        return save([node], [("x", element_type, shape)], [("y", element_type, shape)], metadata=metadata)

    return write


@pytest.fixture
def add(save):
    """``c = a + b``, ``a`` of an unknown number of rows."""
    node = helper.make_node("Add", ["a", "b"], ["c"], name="add")
    values = [("a", TensorProto.FLOAT, ["rows", 2]), ("b", TensorProto.FLOAT, [2])]
    return save([node], values, [("c", TensorProto.FLOAT, ["rows", 2])])


@pytest.fixture
def homeless(save):
    """A model with a node that no provider has a kernel for, beside one that has."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Frobnicate", ["r"], ["y"], name="odd", domain="nowhere"),
    ]
    return save(nodes, [("x", TensorProto.FLOAT, [2])], [("y", TensorProto.FLOAT, [2])], domains=["nowhere"])


@pytest.fixture
def save_array(tmp_path):
    def write(name, array):
        path = tmp_path / name
        np.save(path, array)
        return path

    return write
