"""ConvTranspose of many weights with a bias, beside onnxruntime: oneDNN alone gets it wrong."""

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper
from ort_sdk_cpu.conv.onednn.bias import BiasApartKernel
from ort_sdk_cpu.onednn import library

import ort_sdk as ort
from ort_sdk.api import InvalidArgument

pytestmark = pytest.mark.skipif(not library.is_available(), reason="oneDNN is not installed")


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def model_of(weight, *, computed=(), behind="", **attributes):
    """A transposed convolution, with weight or bias computed in each run, or something behind it."""
    constants = {"w": weight, "b": random(weight.shape[1] * attributes.get("group", 1))}
    nodes = [helper.make_node("Abs", [name], [f"{name}_computed"]) for name in computed]
    given = [f"{name}_computed" if name in computed else name for name in constants]
    fed = {"x": [None] * weight.ndim} | {name: constants.pop(name).shape for name in computed}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in fed.items()]
    nodes.append(helper.make_node("ConvTranspose", ["x", *given], ["y"], **attributes))
    if behind:
        nodes.append(helper.make_node(behind, ["y"], ["z"]))
    fetched = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [None] * weight.ndim)
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", inputs, [fetched], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def check(model, shapes, **others):
    """Equal to onnxruntime in the first runs, in programs, and while sizes change."""
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    other = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for run in range(3):
        for shape in shapes:
            feeds = {"x": random(*shape, seed=run)} | {name: random(*size, seed=run) for name, size in others.items()}
            (found,), (expected,) = session.run(None, feeds), other.run(None, feeds)
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("size", [1, 3, 12])
def test_a_bias_of_another_size_is_refused_in_every_run(size):
    model = ModelProto.FromString(model_of(random(4, 3, 2, 2), computed=("w",), group=2, strides=[2, 2]))
    (bias,) = (tensor for tensor in model.graph.initializer if tensor.name == "b")
    bias.CopyFrom(numpy_helper.from_array(random(size), "b"))
    library.library()  # small ones are computed by it only where it is there already
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(5):
        with pytest.raises(InvalidArgument, match=r"must have \(6,\)"):
            session.run(None, {"x": random(2, 4, 5, 5), "w": random(4, 3, 2, 2)})


@pytest.fixture
def finished(monkeypatch):
    """A list that has an entry for each result a bias was added to by NumPy."""
    found = []
    finish = BiasApartKernel.finish

    def counted(kernel, inputs, out):
        found.extend([True] * kernel.has_finish)
        finish(kernel, inputs, out)

    monkeypatch.setattr(BiasApartKernel, "finish", counted)
    return found


@pytest.mark.parametrize("behind", ["", "Relu", "Tanh"])
@pytest.mark.parametrize(
    ("weight", "attributes"),
    [
        ((256, 128, 4, 4), {"strides": [4, 4]}),
        ((1024, 64, 3, 3), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
        ((512, 32, 4, 4), {"strides": [4, 4], "group": 2}),
        ((512, 256, 16), {"strides": [16]}),
        ((512, 24, 2, 4, 4), {"strides": [2, 4, 4]}),
    ],
    ids=str,
)
def test_bias_of_many_weights(finished, weight, attributes, behind):
    rank = len(weight) - 2
    check(model_of(random(*weight) / 32, behind=behind, **attributes), [(1, weight[0], *(7, 9, 5)[:rank])])
    assert len(finished) < 3, "the program adds by NumPy"


def test_sizes_that_change(finished):
    shapes = [(batch, 256, 7, width) for batch, width in ((1, 9), (2, 9), (1, 10), (1, 11), (3, 5))]
    check(model_of(random(256, 128, 4, 4) / 16, strides=[4, 4]), shapes)
    assert finished


@pytest.mark.parametrize("computed", [("b",), ("w",), ("w", "b")], ids=str)
def test_computed_weights(finished, computed):
    sizes = {"w": (256, 128, 4, 4), "b": (128,)}
    model = model_of(random(*sizes["w"]), computed=computed, strides=[4, 4])
    check(model, [(1, 256, 7, 9)], **{name: sizes[name] for name in computed})
    assert finished


def test_few_weights_keep_their_bias(finished):
    check(model_of(random(32, 16, 4, 4), strides=[4, 4]), [(1, 32, 7, 9)])
    assert not finished
