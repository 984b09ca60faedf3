"""Whole networks on the stand-in, as one graph each."""

import numpy as np
import onnx
import pytest
from cuda_models import session_of
from onnx import TensorProto, helper

import ort_sdk as ort
from ort_sdk.testing.cases import load_cases
from ort_sdk.testing.compare import assert_same

CASES = {case.name: case for case in load_cases("real") if case.name in ("test_squeezenet", "test_resnet50")}
SLOW = {"test_resnet50"}
"""Minutes where a processor stands for a GPU."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CASES])
def test_a_real_network(name, driver):
    case = CASES[name]
    model = case.model_bytes()
    graph = onnx.ModelProto.FromString(model).graph
    constants = {tensor.name for tensor in graph.initializer}
    names = [value.name for value in graph.input if value.name not in constants]
    session = session_of(model)
    for inputs, expected in case.data_sets():
        for _ in range(5):
            driver.calls.clear()
            outputs = session.run(None, dict(zip(names, inputs, strict=False)))
            for actual, wanted in zip(outputs, expected, strict=True):
                assert_same(actual, wanted, rtol=case.rtol, atol=max(case.atol, 1e-6))
        assert driver.calls["launch_graph"] == 1
        assert not driver.calls["launch"] + driver.calls["allocate"] + driver.calls["allocate_pinned"]


def test_a_growing_decoder_keeps_its_state_on_the_device(driver):
    """Keys and values of all steps so far stay there, and are others in each step; tokens come from the host."""
    size = 8
    weight = (np.random.default_rng(0).standard_normal((size, size)) / size**0.5).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["k"]),
        helper.make_node("Concat", ["past", "k"], ["present"], axis=0),
        helper.make_node("Transpose", ["present"], ["t"]),
        helper.make_node("MatMul", ["x", "t"], ["s"]),
        helper.make_node("Softmax", ["s"], ["p"]),
        helper.make_node("MatMul", ["p", "present"], ["y"]),
    ]
    float_ = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", float_, [1, size]), helper.make_tensor_value_info("past", float_, ["n", size])],
        [helper.make_tensor_value_info("y", float_, [1, size]), helper.make_tensor_value_info("present", float_, ["m", size])],
        [helper.make_tensor("w", float_, weight.shape, weight.tobytes(), raw=True)],
    )
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session, rng = session_of(content), np.random.default_rng(1)
    past, wanted_past = (
        ort.OrtValue.ortvalue_from_numpy(np.zeros((1, size), np.float32), "cuda", 0),
        np.zeros((1, size), np.float32),
    )
    for _ in range(12):
        x = rng.standard_normal((1, size)).astype(np.float32)
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_ortvalue_input("past", past)
        binding.bind_output("y", "cpu")
        binding.bind_output("present", "cuda")
        session.run_with_iobinding(binding)
        y, past = binding.get_outputs()
        wanted_past = np.concatenate([wanted_past, x @ weight])
        scores = np.exp(x @ wanted_past.T)
        np.testing.assert_allclose(y.numpy(), scores / scores.sum() @ wanted_past, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(past.numpy(), wanted_past, rtol=1e-5, atol=1e-6)
