"""Kernels name the algorithm they compute with: ``explain``, ``profile``, traces and reports of programs show it per node."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.api import (
    CPU_DEVICE,
    ExecutionProvider,
    FusedSteps,
    KernelRegistry,
    OpKernel,
    OrtMemoryInfo,
    ProviderHooks,
    StepFusion,
    hookimpl,
)
from ort_sdk.plugins import plugin_manager

NAME = "NamingExecutionProvider"
FLOATS = {"T": ["tensor(float)"]}


class Product(OpKernel):
    """Knows its algorithm when it has seen shapes."""

    deterministic = True
    shape_inputs = ()
    algorithm = None

    def compute(self, a, b):
        self.algorithm = "gemm" if a.shape[0] > 1 else "gemv"
        return a @ b

    def bind(self, inputs, outputs):
        def call():
            outputs[0].array[...] = self.compute(inputs[0].array, inputs[1].array)

        return call


class Rectifier(Product):
    algorithm = "maximum"

    def compute(self, x):
        return np.maximum(x, 0)

    def bind(self, inputs, outputs):
        return lambda: np.maximum(inputs[0].array, 0, out=outputs[0].array)


class Fused:
    algorithm = "gemm, rectified"

    def bind(self, inputs, outputs):
        return lambda: np.maximum(inputs[0].array @ inputs[1].array, 0, out=outputs[0].array)


class NamingExecutionProvider(ExecutionProvider):
    def fuse_steps(self, program):
        positions = tuple(program.steps)
        operators = [step.op_type for step in program.steps.values()]
        if operators[:2] != ["MatMul", "Relu"]:
            return StepFusion()
        product, rectified = (program.steps[position] for position in positions[:2])
        return StepFusion((FusedSteps(positions[:2], Fused(), product.inputs, rectified.outputs),))


class HostAllocator:
    """Lets steps be bound, and so be fused."""

    memory_info = OrtMemoryInfo(CPU_DEVICE)

    def allocate(self, shape, element_type):
        return np.empty(shape, element_type.numpy_dtype)

    def release(self, array):
        del array


class NamingProvider(ProviderHooks):
    name = NAME
    api_version = 1

    @hookimpl
    def get_supported_devices(self):
        return [CPU_DEVICE]

    @hookimpl
    def create_execution_provider(self, device, provider_options, session_options):
        return NamingExecutionProvider(NAME, device, provider_options)

    @hookimpl
    def create_allocator(self, execution_provider, memory_info):
        return HostAllocator()

    @hookimpl
    def get_kernel_registry(self, execution_provider):
        registry = KernelRegistry(NAME)
        registry.kernel("MatMul", 13, FLOATS)(lambda _info: Product())
        registry.kernel("Relu", 14, FLOATS)(lambda _info: Rectifier())
        registry.kernel("Neg", 13, FLOATS)(lambda _info: np.negative)
        return registry


@pytest.fixture(autouse=True)
def provider():
    plugin_manager().register(NamingProvider(), name="naming")
    yield
    plugin_manager().unregister("naming")


@pytest.fixture
def model(save):
    """Two nodes that are fused, one whose kernel names nothing, one without a name."""

    def make(rows):
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
            helper.make_node("Relu", ["p"], ["r"], name="rectified"),
            helper.make_node("Neg", ["r"], ["n"], name="negative"),
            helper.make_node("MatMul", ["n", "w"], ["y"]),
        ]
        weights = {"w": np.eye(3, dtype=np.float32)}
        return save(nodes, [("x", TensorProto.FLOAT, [rows, 3])], [("y", TensorProto.FLOAT, [rows, 3])], weights)

    return make


def explained(cli, model, *arguments):
    done = cli("explain", model, "--provider", NAME, "--level", "none", "--json", *arguments)
    assert done.code == 0, done.err
    return [row["algorithm"] for row in json.loads(done.out)["nodes"]]


def test_explain_runs_a_model_of_known_shapes_to_learn_them(cli, model):
    assert explained(cli, model(1)) == ["gemv", "maximum", None, "gemv"]
    assert explained(cli, model(4)) == ["gemm", "maximum", None, "gemm"]
    assert explained(cli, model(4), "--no-run") == [None, "maximum", None, None]


def test_explain_runs_other_models_where_sizes_are_given(cli, model):
    path = model("n")
    assert explained(cli, path) == [None, "maximum", None, None]
    assert explained(cli, path, "--dim", "n=2") == ["gemm", "maximum", None, "gemm"]
    listed = cli("explain", path, "--provider", NAME, "--level", "none", "--nodes").out
    assert "algorithm" in listed.splitlines()[0]
    assert "--dim NAME=N" in listed


def test_explain_shows_those_of_fused_steps(cli, model):
    assert explained(cli, model(2), "--program") == ["gemm, rectified", "gemm, rectified", None, "gemm"]


def test_explain_survives_a_run_that_fails(cli, model, monkeypatch):
    def compute(self, x):
        raise ValueError("not today")

    monkeypatch.setattr(Rectifier, "compute", compute)
    done = cli("explain", model(2), "--provider", NAME, "--level", "none", "--json")
    assert done.code == 0
    assert [row["algorithm"] for row in json.loads(done.out)["nodes"]] == ["gemm", "maximum", None, None]
    assert "not today" in done.err


@pytest.mark.parametrize(("arguments", "product"), [([], "gemm, rectified"), (["--step-by-step"], "gemm")])
def test_profile_has_them_in_the_rows_of_nodes(cli, model, arguments, product):
    command = ["profile", model(2), "--provider", NAME, "--level", "none", "--runs", "1", *arguments]
    rows = json.loads(cli(*command, "--nodes", "--json").out)["rows"]
    found = {row["node"]: row["algorithm"] for row in rows}
    assert next(algorithm for node, algorithm in found.items() if node.startswith("product")) == product
    assert found["negative"] is None
    assert product in cli(*command, "--nodes").out
    assert "algorithm" not in json.loads(cli(*command, "--json").out)["rows"][0]


def test_traces_have_them(model, tmp_path):
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = ort.InferenceSession(model(2), options, providers=[NAME])
    session.run(None, {"x": np.ones((2, 3), np.float32)})
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    nodes = {event["name"]: event["args"] for event in events if event["cat"] == "Node"}
    assert nodes["product_kernel_time"]["algorithm"] == "gemm"
    assert "algorithm" not in nodes["negative_kernel_time"]


def test_programs_of_a_session_have_them(model):
    session = ort.InferenceSession(model(2), providers=[NAME])
    for _ in range(3):
        session.run(None, {"x": np.ones((2, 3), np.float32)})
    (program,) = session.program_report()
    assert {name: program.algorithms[name] for name in ("product", "rectified", "negative")} == {
        "product": "gemm, rectified",
        "rectified": "gemm, rectified",
        "negative": None,
    }


def test_kernels_of_the_cpu_provider_name_theirs(cli, digits):
    pytest.importorskip("numba")
    done = cli("explain", digits, "--provider", "cpu", "--dim", "batch=1", "--json")
    assert done.code == 0, done.err
    found = {row["node"]: row["algorithm"] for row in json.loads(done.out)["nodes"]}
    assert found["relu2"], "a convolution is computed by one of several algorithms"
    assert all(algorithm is None or isinstance(algorithm, str) for algorithm in found.values())
