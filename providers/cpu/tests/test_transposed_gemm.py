"""ConvTranspose whose windows lie side by side, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.conv.transposed.gemm import TransposedGemmKernel
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

pytestmark = pytest.mark.skipif(
    not (libraries.compiled_kernels().is_usable and libraries.onednn().is_usable),
    reason=f"{libraries.compiled_kernels()}; {libraries.onednn()}",
)


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def model_of(weight, *, bias="constant", before=(), behind="", **attributes):
    """A transposed convolution; its bias is a constant, computed in each run from a second input, or absent."""
    attributes = {"strides": weight.shape[2:]} | attributes
    weights, nodes, x = {"w": weight, "b": random(weight.shape[1])}, [], "x"
    if before:
        nodes.append(helper.make_node("Transpose", ["x"], ["turned"], perm=list(before)))
        x = "turned"
    given = ["b"] * (bias == "constant")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [f"x{axis}" for axis in range(4)])]
    if bias == "computed":
        nodes.append(helper.make_node("Add", ["b", "added"], ["sum"]))
        given = ["sum"]
        inputs.append(helper.make_tensor_value_info("added", TensorProto.FLOAT, [weight.shape[1]]))
    nodes.append(helper.make_node("ConvTranspose", [x, "w", *given], ["y"], **attributes))
    if behind:
        nodes.append(helper.make_node(behind, ["y"], ["z"]))
    fetched = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [None] * 4)
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [fetched], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def check(model, *shapes, runs=3, **others):
    """Equal to onnxruntime in the first runs, and in a program."""
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    other = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for run in range(runs):
        for shape in shapes:
            feeds = {"x": random(*shape, seed=run)} | {name: random(*size, seed=run) for name, size in others.items()}
            (found,), (expected,) = session.run(None, feeds), other.run(None, feeds)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.fixture
def done(monkeypatch):
    """For each input that is asked about, whether it is taken."""
    found = []
    takes = TransposedGemmKernel._takes

    def noting(self, x):
        found.append(takes(self, x))
        return found[-1]

    monkeypatch.setattr(TransposedGemmKernel, "_takes", noting)
    return found


@pytest.mark.parametrize("bias", ["constant", ""])
@pytest.mark.parametrize("weight", [(32, 1, 16, 16), (24, 5, 2, 2), (8, 6, 4, 2), (5, 8, 1, 3), (16, 16, 2, 2)])
@pytest.mark.parametrize("size", [(1, 11, 9), (2, 32, 40), (3, 1, 1)])
def test_windows_side_by_side(done, weight, size, bias):
    samples, *spatial = size
    check(model_of(random(*weight), bias=bias), (samples, weight[0], *spatial))
    assert done
    assert all(done)


def test_an_input_and_a_result_that_lie_otherwise(done):
    check(model_of(random(24, 5, 2, 2), before=[0, 3, 1, 2], behind="Sigmoid"), (2, 20, 30, 24))
    assert all(done)


def test_another_size_in_each_run(done):
    check(model_of(random(24, 5, 2, 2)), *[(1, 24, 20 + step, 30) for step in range(12)], runs=1)
    assert all(done)


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [1, 2]},
        {"pads": [1, 0, 0, 0]},
        {"output_padding": [1, 0]},
        {"dilations": [2, 2]},
        {"output_shape": [21, 30]},
        {"bias": "computed"},
    ],
)
def test_others_are_left_to_other_kernels(done, attributes):
    others = {"added": (5,)} if "bias" in attributes else {}
    check(model_of(random(24, 5, 2, 2), **attributes), (1, 24, 10, 15), **others)
    assert not done


@pytest.mark.parametrize("weight", [(24, 17, 2, 2), (24, 3, 1, 1), (24, 3, 2, 2)])
def test_other_weights_are_left_to_other_kernels(done, weight):
    check(model_of(random(*weight)), (1, 24, 10, 15))
    assert not done


@pytest.mark.parametrize(("channels", "attributes"), [(23, {}), (24, {"kernel_shape": [3, 3]})])
def test_sizes_that_contradict_the_weight(channels, attributes):
    def run():
        session = ort.InferenceSession(model_of(random(24, 5, 2, 2), **attributes), providers=["CPUExecutionProvider"])
        session.run(None, {"x": random(1, channels, 4, 4)})

    with pytest.raises(ort.api.OrtSdkError):
        run()
