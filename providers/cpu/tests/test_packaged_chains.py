"""Chains that archives have: a process without a compiler computes with them, whole chains or in parts, as NumPy does."""

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.fusion.elementwise.packaged import packaged_chains
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.targets import machine_targets

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="archives are for Linux on x86-64"),
    pytest.mark.skipif(not libraries.numba().is_usable, reason=str(libraries.numba())),
]

TARGET = machine_targets()[-1].name
TASKS = "[ce][hl]*"
"""``chains`` and ``elementwise.*``."""

RUN = """
import json, sys
from pathlib import Path
from importlib.machinery import PathFinder
find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.partition(".")[0] in ("numba", "llvmlite") else find_spec(name, *rest)
from ort_sdk_cpu.platform import archives
archives.PACKAGED = Path(sys.argv[1])
import numpy as np
import ort_sdk as ort
found = []
for path in sorted(Path(sys.argv[2]).glob("*.onnx")):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = dict(np.load(path.with_suffix(".npz")))
    for _ in range(5):
        results = session.run(None, feeds)
    np.savez(path.with_suffix(".results.npz"), *results)
    found.append([[list(each) for each in row.fused] for row in session.program_report()])
assert not any(name in sys.modules for name in ("numba", "llvmlite"))
print(json.dumps([found, sum(".kernels" in line for line in open("/proc/self/maps"))]))
"""

UNARY = {
    "Abs": np.abs,
    "Exp": np.exp,
    "Neg": np.negative,
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sqrt": np.sqrt,
    "Tanh": np.tanh,
    "Gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / np.sqrt(2))) / 2,
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "Softsign": lambda x: x / (1 + np.abs(x)),
}
BINARY = {"Add": np.add, "Div": np.divide, "Mul": np.multiply, "Sub": np.subtract, "Max": np.maximum, "Min": np.minimum}
KNOWN = UNARY | BINARY


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An archive of chains, and of the tasks that compute single steps until there is a program."""
    made = tmp_path_factory.mktemp("kernels")
    command = [sys.executable, "-P", "-m", "ort_sdk_cpu.jit.build_archive", "--target", TARGET, "--tasks", TASKS]
    command += ["--jobs", "1", "--output", str(made / f"x86_64-linux-{TARGET}.kernels")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made


class Cases:
    """Models, what they are fed, and what they give in float64."""

    def __init__(self, place):
        self.place, self.expected = place, []

    def add(self, nodes, inputs, outputs):
        """Nodes as (operator, inputs, output), which are computed here by NumPy."""
        values = {name: array.astype(np.float64) for name, array in inputs.items()}
        for op_type, sources, made in nodes:
            values[made] = KNOWN[op_type](*(values[source] for source in sources))
        domains = {"Gelu": "com.microsoft"}
        made = [helper.make_node(op_type, sources, [output], domain=domains.get(op_type)) for op_type, sources, output in nodes]
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in inputs.items()]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(helper.make_graph(made, "graph", infos, results), opset_imports=opsets, ir_version=9)
        path = self.place / f"{len(self.expected):04}.onnx"
        path.write_bytes(model.SerializeToString())
        np.savez(path.with_suffix(".npz"), **inputs)
        self.expected.append([values[name] for name in outputs])

    def run(self, folder):
        """By case, the operators of each part that computes several; and mappings of archives. Results are compared."""
        own = {"ORT_SDK_CPU_ISA": TARGET, "ORT_SDK_CPU_CACHE_DIR": str(self.place / "none"), "HOME": "/nonexistent"}
        command = [sys.executable, "-P", "-c", RUN, str(folder), str(self.place)]
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for number, expected in enumerate(self.expected):
            for got, wanted in zip(np.load(self.place / f"{number:04}.results.npz").values(), expected, strict=True):
                np.testing.assert_allclose(got, wanted, rtol=2e-6, atol=2e-6, err_msg=str(number))
        found, mapped = json.loads(done.stdout.splitlines()[-1])
        return [max(reports, key=len, default=[]) for reports in found], mapped


@pytest.fixture
def cases(tmp_path):
    return Cases(tmp_path)


def positive(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).uniform(0.1, 2, shape).astype(np.float32)


def test_each_is_what_a_models_steps_become(folder, cases):
    """In any layout of its inputs: whole, one element, and rows that broadcast."""
    expected, shapes = [], [(3, 40), (1,), (40,)]
    for number, chain in enumerate(packaged_chains()):
        names = [step.operation.op_type for step in chain.steps]
        if not all(name in KNOWN and not step.operation.attributes for name, step in zip(names, chain.steps, strict=True)):
            continue
        others = {f"i{index}": positive(*shapes[(index + number) % 3]) for index in range(1, len(chain.inputs))}
        inputs = {"i0": positive(3, 40) + 2} | others
        values = [*inputs, *(f"v{index}" for index in range(len(names)))]
        nodes = [
            (name, [values[operand] for operand in step.operands], f"v{index}")
            for index, (name, step) in enumerate(zip(names, chain.steps, strict=True))
        ]
        cases.add(nodes, inputs, [values[-1]])
        expected.append([names] if len(names) > 1 else [])
    found, mapped = cases.run(folder)
    assert len(expected) > 200
    assert found == expected
    assert mapped > len(expected)


def test_longer_chains_are_computed_in_parts(folder, cases):
    """The root of a sum of squares; a gate; one whose middle is an output, too; one with an operator that no archive has."""
    x, y = positive(129, 5), positive(129, 5, seed=1)
    squares = [("Mul", ["x", "x"], "a"), ("Mul", ["y", "y"], "b"), ("Add", ["a", "b"], "c"), ("Sqrt", ["c"], "d")]
    cases.add(squares, {"x": x, "y": y}, ["d"])
    gate = [
        ("Mul", ["x", "w"], "a"),
        ("Add", ["a", "v"], "b"),
        ("Sigmoid", ["b"], "c"),
        ("Mul", ["b", "c"], "d"),
        ("Tanh", ["d"], "e"),
    ]
    cases.add(gate, {"x": x, "w": positive(5), "v": positive(1)}, ["e"])
    cases.add([("Add", ["x", "y"], "a"), ("Relu", ["a"], "b"), ("Mul", ["b", "x"], "c")], {"x": x, "y": y}, ["a", "c"])
    found, _ = cases.run(folder)
    assert found == [[["Mul", "Add"]], [["Mul", "Add"], ["Sigmoid", "Mul"]], [["Relu", "Mul"]]]


def test_without_an_archive_nothing_is_fused(cases, tmp_path):
    x = positive(64, 64)
    cases.add([("Mul", ["x", "x"], "a"), ("Sqrt", ["a"], "b")], {"x": x}, ["b"])
    found, mapped = cases.run(tmp_path / "empty")
    assert (found, mapped) == ([[]], 0)


def test_packaged_chains_differ():
    chains = [str(chain) for chain in packaged_chains()]
    assert len(set(chains)) == len(chains)
