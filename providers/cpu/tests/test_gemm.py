"""GEMM that reads B in place: every algorithm beside float64; unaligned, odd sizes, several threads."""

import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.gemm.plan import GemmCall
from ort_sdk_cpu.gemm.select import GemmProblem
from ort_sdk_cpu.kernel.activation import Activation, ActivationKind
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, machine_instruction_set

from ort_sdk import InferenceSession, SessionOptions

needs_numba = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="numba is not installed")
pytestmark = needs_numba

ROWS = (1, 2, 3, 4, 5, 7, 12, 13, 16, 17, 24, 25, 33, 64, 127, 130)
SIZES = ((24, 700), (96, 200), (300, 33), (513, 97), (1024, 130), (1300, 64), (301, 2100))


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def unaligned(array, offset):
    """The array's bytes at an odd address, with guards around them."""
    raw = np.full(array.nbytes + 256, 0xFF, np.uint8)
    start = -raw.ctypes.data % 64 + 64 + offset
    raw[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)
    raw.flags.writeable = False
    return raw[start : start + array.nbytes]


def gemm(a, b, *, is_transposed=False, bias=None, offset=0, **tail):
    """The product written into the middle of a larger array, whose rest must stay."""
    rows, inner = a.shape
    columns = b.shape[0 if is_transposed else 1]
    guarded = np.full(rows * columns + 128, 7, np.float32)
    out = guarded[64:-64].reshape(rows, columns)
    out.fill(np.nan)
    call = GemmCall(GemmProblem(rows, inner, columns, is_transposed), Workspace(), **tail)
    call(a, unaligned(b, offset), bias, out)
    assert (guarded[:64] == 7).all()
    assert (guarded[-64:] == 7).all()
    return out


def check(rows, inner, columns, *, is_transposed=False, offset=0):
    a, b = random(rows, inner), random(inner, columns, seed=1)
    given = np.ascontiguousarray(b.T) if is_transposed else b
    found = gemm(a, given, is_transposed=is_transposed, offset=offset)
    expected, scale = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    assert (np.abs(found - expected) <= 1e-6 * scale).all()


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(("inner", "columns"), SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_every_form_beside_float64(rows, inner, columns, is_transposed):
    check(rows, inner, columns, is_transposed=is_transposed, offset=rows % 4 + 1)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("rows", [600, 1100])
def test_more_rows_than_are_multiplied_at_a_time(rows, is_transposed):
    check(rows, 1024, 70, is_transposed=is_transposed)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("threads", [1, 3, 8])
def test_any_number_of_threads(monkeypatch, threads, is_transposed):
    monkeypatch.setattr(libraries, "thread_count", lambda: threads)
    for rows, inner, columns in ((3, 600, 400), (40, 512, 512), (250, 300, 90)):
        check(rows, inner, columns, is_transposed=is_transposed, offset=2)


ACTIVATIONS = {
    ActivationKind.LEAKY_RELU: lambda x: np.where(x < 0, x * 0.25, x),
    ActivationKind.SIGMOID: lambda x: 1 / (1 + np.exp(-x)),
    ActivationKind.TANH: np.tanh,
    ActivationKind.IDENTITY: lambda x: x,
}


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("kind", ACTIVATIONS)
@pytest.mark.parametrize("rows", [1, 4, 9, 50])
def test_bias_factor_and_activation(rows, kind, is_transposed):
    a, b, bias = random(rows, 130), random(130, 131, seed=1) / 12, random(131, seed=2)
    given = np.ascontiguousarray(b.T) if is_transposed else b
    found = gemm(a, given, is_transposed=is_transposed, bias=bias, alpha=0.5, activation=Activation(kind, 0.25))
    expected = ACTIVATIONS[kind](0.5 * (a.astype(np.float64) @ b) + bias)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("rows", [2, 20])
def test_infinities_and_nan_stay_in_their_column(rows, is_transposed):
    a, b = random(rows, 100), random(100, 90, seed=1)
    b[99, 89], b[0, 0] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = a @ b
    found = gemm(a, np.ascontiguousarray(b.T) if is_transposed else b, is_transposed=is_transposed)
    assert np.isnan(found[:, 0]).all()
    np.testing.assert_array_equal(found[:, 89], expected[:, 89])
    assert np.isfinite(found[:, 1:89]).all()


def model(weight, op_type, **attributes):
    inner, columns = weight.shape[::-1] if attributes.get("transB") else weight.shape
    inputs = ["x", "w", "c"] if op_type == "Gemm" else ["x", "w"]
    graph = helper.make_graph(
        [helper.make_node(op_type, inputs, ["h"], **attributes), helper.make_node("Relu", ["h"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", columns])],
        [onnx.numpy_helper.from_array(weight, "w"), onnx.numpy_helper.from_array(random(columns, seed=2), "c")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def sessions_output(weight, op_type, config, runs=3, **attributes):
    options = SessionOptions()
    for key, value in config.items():
        options.add_session_config_entry(key, value)
    session = InferenceSession(model(weight, op_type, **attributes), options, providers=["CPUExecutionProvider"])
    inner = weight.shape[1 if attributes.get("transB") else 0]
    for rows in (1, 30):
        x = random(rows, inner, seed=rows)
        for _ in range(runs):
            (found,) = session.run(None, {"x": x})
        matrix = weight.T if attributes.get("transB") else weight
        expected = x.astype(np.float64) @ matrix * attributes.get("alpha", 1.0)
        expected += random(matrix.shape[1], seed=2) if op_type == "Gemm" else 0
        np.testing.assert_allclose(found, np.maximum(expected, 0), rtol=1e-5, atol=2e-5)


CONFIGS = ({}, {"session.disable_prepacking": "1"}, {"session.disable_programs": "1"})


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize(("op_type", "attributes"), [("MatMul", {}), ("Gemm", {"transB": 1, "alpha": 0.5}), ("Gemm", {})])
def test_sessions(config, op_type, attributes):
    shape = (150, 200) if attributes.get("transB") else (200, 150)
    sessions_output(random(*shape, seed=5), op_type, config, **attributes)


@pytest.mark.parametrize("tail", [[], [("Relu", "h", "y")]], ids=["alone", "followed"])
def test_channels_as_columns(tail):
    """A picture whose channels a transpose makes columns is put in rows in each run."""
    weight, ends = random(48, 70), "h" if tail else "y"
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Transpose", ["s"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["t", "w"], [ends]),
        *(helper.make_node(op_type, [given], [made]) for op_type, given, made in tail),
    ]
    graph = helper.make_graph(
        nodes,
        "turned",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 48, 300])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 300, 70])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    session = InferenceSession(made, providers=["CPUExecutionProvider"])
    for seed in range(5):
        x = random(1, 48, 300, seed=seed)
        (found,) = session.run(None, {"x": x})
        expected = (1 / (1 + np.exp(-x.astype(np.float64)))).swapaxes(1, 2) @ weight
        np.testing.assert_allclose(found, np.maximum(expected, 0) if tail else expected, rtol=1e-5, atol=2e-5)


def test_a_session_on_several_threads():
    weight = random(200, 150, seed=5)
    session = InferenceSession(model(weight, "MatMul"), providers=["CPUExecutionProvider"])

    def run(seed):
        x = random(1 + seed % 40, 200, seed=seed)
        for _ in range(20):
            (found,) = session.run(None, {"x": x})
            np.testing.assert_allclose(found, np.maximum(x.astype(np.float64) @ weight, 0), rtol=1e-5, atol=2e-5)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(16)))


_CHILD = """
import numpy as np, sys
sys.path.insert(0, {folder!r})
import test_gemm as tests
for rows in (1, 4, 6, 9, 20, 50):
    for is_transposed in (False, True):
        tests.check(rows, 600, 131, is_transposed=is_transposed, offset=1)
"""


@pytest.mark.instruction_sets
@pytest.mark.parametrize("level", [level for level in InstructionSet if level < machine_instruction_set()])
def test_other_instruction_sets(level):
    environment = {**os.environ, "ORT_SDK_CPU_ISA": level.name.lower()}
    code = _CHILD.format(folder=str(Path(__file__).parent))
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)


_WITHOUT = """
import sys
sys.path.insert(0, {folder!r})
import test_gemm as tests
tests.sessions_output(tests.random(200, 150, seed=5), "MatMul", {{}})
"""


@pytest.mark.parametrize("disabled", ["kernels", "onednn", "kernels,onednn", "numba,onednn"])
def test_without_libraries(disabled):
    environment = {**os.environ, "ORT_SDK_CPU_DISABLE": disabled}
    code = _WITHOUT.format(folder=str(Path(__file__).parent))
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)
