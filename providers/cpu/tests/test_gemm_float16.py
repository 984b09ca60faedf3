"""GEMM that reads a B of float16 in place: every algorithm beside float64; whole models beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.gemm.plan import GemmCall
from ort_sdk_cpu.gemm.select import GemmProblem
from ort_sdk_cpu.kernel.activation import Activation, ActivationKind
from ort_sdk_cpu.memory.workspace import Workspace
from ort_sdk_cpu.platform import libraries
from ort_sdk_cpu.platform.cpu_features import InstructionSet, instruction_set

from ort_sdk import InferenceSession, SessionOptions

can_read = libraries.compiled_kernels().is_usable and instruction_set() >= InstructionSet.AVX2
pytestmark = pytest.mark.skipif(not can_read, reason="numba is not installed, or the processor does not convert halves")

HALF = TensorProto.FLOAT16
RUNS = 4


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def halves_at_odd_address(array):
    """The array's bytes, with NaN around them."""
    raw = np.full(array.nbytes + 130, 0xFF, np.uint8)
    start = -raw.ctypes.data % 64 + 65
    raw[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)
    return raw[start : start + array.nbytes]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(("inner", "columns"), [(24, 700), (300, 33), (513, 97), (1024, 130), (67, 4500)])
@pytest.mark.parametrize("rows", [1, 2, 4, 12, 13, 33, 600])
def test_every_form_beside_float64(monkeypatch, rows, inner, columns, is_transposed, threads):
    monkeypatch.setattr(libraries, "thread_count", lambda: threads)
    a, b = random(rows, inner).astype(np.float32), random(inner, columns, seed=1).astype(np.float16)
    guarded = np.full(rows * columns + 128, 7, np.float32)
    out = guarded[64:-64].reshape(rows, columns)
    bias = random(columns, seed=2).astype(np.float32)
    call = GemmCall(
        GemmProblem(rows, inner, columns, is_transposed, True), Workspace(), activation=Activation(ActivationKind.LEAKY_RELU, 0.5)
    )
    call(a, halves_at_odd_address(np.ascontiguousarray(b.T) if is_transposed else b), bias, out)
    plain = a.astype(np.float64) @ b.astype(np.float64) + bias
    scale = np.abs(a).astype(np.float64) @ np.abs(b.astype(np.float64)) + np.abs(bias)
    assert (np.abs(out - np.where(plain < 0, plain * 0.5, plain)) <= 1e-6 * scale).all()
    assert (guarded[:64] == 7).all()
    assert (guarded[-64:] == 7).all()


def model_of(op_type, *, weight, bias=None, **attributes):
    names = ["x", "w"] + (["b"] if bias is not None else [])
    constants = {"w": weight} if bias is None else {"w": weight, "b": bias}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["a"], **attributes), helper.make_node("Relu", ["a"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", HALF, ["n", None])],
        [helper.make_tensor_value_info("y", HALF, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


MODELS = {
    "MatMul": ({}, (400, 300), False),
    "Gemm": ({}, (400, 300), True),
    "turned": ({"transB": 1}, (300, 400), True),
    "scaled": ({"alpha": 0.25, "beta": 2.0}, (400, 300), True),
    "turned first": ({"transA": 1}, (400, 300), True),
    "narrow": ({}, (9000, 9), True),
}


@pytest.mark.parametrize("programs", [True, False])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rows", [1, 5])
def test_models_beside_onnxruntime(name, rows, programs):
    attributes, shape, has_bias = MODELS[name]
    inner, columns = reversed(shape) if attributes.get("transB") else shape
    bias = random(columns, seed=2).astype(np.float16) if has_bias else None
    weight = (random(*shape, seed=1) / np.sqrt(inner)).astype(np.float16)
    model = model_of("Gemm" if has_bias else "MatMul", weight=weight, bias=bias, **attributes)
    x = random(*((inner, rows) if attributes.get("transA") else (rows, inner))).astype(np.float16)
    options = SessionOptions()
    options.add_session_config_entry("session.disable_programs", "0" if programs else "1")
    session = InferenceSession(model, options)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    for _ in range(RUNS):
        found = session.run(None, {"x": x})[0]
        assert found.dtype == np.float16
        np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("programs", [True, False])
def test_wrong_sizes_are_refused(programs):
    options = SessionOptions()
    options.add_session_config_entry("session.disable_programs", "0" if programs else "1")
    session = InferenceSession(model_of("MatMul", weight=random(400, 300).astype(np.float16)), options)
    for _ in range(RUNS):
        with pytest.raises(Exception, match="400"):
            session.run(None, {"x": np.ones((2, 399), np.float16)})
