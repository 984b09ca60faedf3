"""Gemm with an activation that no epilogue of a GEMM task has, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.gemm.unfused_activation import GemmAndActivation
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason=str(libraries.compiled_kernels()))

INNER, COLUMNS = 200, 160


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def model_of(activation, parameters, *, bias="constant", **attributes):
    """Gemm, an activation and another Gemm; the first bias is a constant, an input, or absent."""
    shape = (COLUMNS, INNER) if attributes.get("transB") else (INNER, COLUMNS)
    constants = {"w": random(*shape) / 8, "v": random(COLUMNS, 30) / 8}
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, INNER])]
    if bias == "constant":
        constants["b"] = random(COLUMNS)
    elif bias == "input":
        inputs.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [COLUMNS]))
    nodes = [
        helper.make_node("Gemm", ["x", "w", *["b"] * (bias != "absent")], ["h"], **attributes),
        helper.make_node(activation, ["h"], ["a"], **parameters),
        helper.make_node("Gemm", ["a", "v"], ["y"]),
    ]
    fetched = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 30])]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", inputs, fetched, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def check(model, rows, **others):
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    other = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for run in range(4):
        feeds = {"x": random(rows, INNER, seed=run)} | {name: random(*size, seed=run) for name, size in others.items()}
        (found,), (expected,) = session.run(None, feeds), other.run(None, feeds)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture
def expanded(monkeypatch):
    """For each node that may become two steps, whether it did."""
    found = []
    expand = GemmAndActivation.expand

    def counted(kernel, program, inputs):
        steps = expand(kernel, program, inputs)
        found.append(steps is not None)
        return steps

    monkeypatch.setattr(GemmAndActivation, "expand", counted)
    return found


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("Elu", {}),
        ("Elu", {"alpha": 0.5}),
        ("Softplus", {}),
        ("Softsign", {}),
        ("ThresholdedRelu", {"alpha": 0.3}),
        ("HardSigmoid", {"alpha": 0.1, "beta": 0.4}),
    ],
    ids=str,
)
def test_activations_are_steps_of_their_own(expanded, activation, parameters, rows):
    check(model_of(activation, parameters), rows)
    assert expanded
    assert all(expanded)


@pytest.mark.parametrize("attributes", [{"transB": 1}, {"alpha": 0.5, "beta": 2.0}], ids=str)
@pytest.mark.parametrize("bias", ["constant", "absent"])
def test_attributes_of_the_product(expanded, attributes, bias):
    check(model_of("Elu", {}, bias=bias, **attributes), 3)
    assert all(expanded)


def test_bias_of_each_run(expanded):
    check(model_of("Elu", {}, bias="input"), 3, b=(COLUMNS,))
    assert not expanded


def test_activation_of_the_task(expanded):
    check(model_of("Tanh", {}), 3)
    assert not expanded
