"""Convolutions that cut pictures and films into patches, beside onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.conv.im2row.patch_embedding import PatchEmbeddingKernel
from ort_sdk_cpu.platform import libraries

import ort_sdk as ort

pytestmark = pytest.mark.skipif(
    not (libraries.compiled_kernels().is_usable and libraries.onednn().is_usable),
    reason=f"{libraries.compiled_kernels()}; {libraries.onednn()}",
)


def random(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def model_of(weight, *, bias=True, before=(), behind=("Reshape", "Transpose"), activation="", **attributes):
    """A convolution, then its patches as rows."""
    outputs = weight.shape[0]
    weights = {"w": weight, "b": random(outputs), "rows": np.array([0, outputs, -1])}
    x, nodes = "x", []
    if before:
        nodes.append(helper.make_node("Transpose", ["x"], ["turned"], perm=list(before)))
        x = "turned"
    nodes.append(helper.make_node("Conv", [x, "w", *["b"] * bias], ["c"], strides=weight.shape[2:], **attributes))
    value = "c"
    if activation:
        nodes.append(helper.make_node(activation, [value], ["a"]))
        value = "a"
    if behind:
        nodes += [
            helper.make_node("Reshape", [value, "rows"], ["r"]),
            helper.make_node("Transpose", ["r"], ["t"], perm=[0, 2, 1]),
        ]
        value = "t"
    rank = 3 if behind else weight.ndim
    shown = [("x", weight.ndim), (value, rank)]
    inputs, fetched = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"{name}{axis}" for axis in range(n)]) for name, n in shown
    )
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "graph", [inputs], [fetched], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def check(model, *shapes, runs=3):
    """Equal to onnxruntime in the first runs, and in a program."""
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    other = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for _ in range(runs):
        for shape in shapes:
            x = random(*shape)
            (found,), (expected,) = session.run(None, {"x": x}), other.run(None, {"x": x})
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.fixture
def done(monkeypatch):
    """For each input that is asked about, whether it is taken."""
    found = []
    takes = PatchEmbeddingKernel._takes

    def noting(self, x):
        found.append(takes(self, x))
        return found[-1]

    monkeypatch.setattr(PatchEmbeddingKernel, "_takes", noting)
    return found


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 3, 64, 64), (2, 3, 48, 80), (1, 3, 70, 95), (3, 3, 16, 16)])
def test_patches_of_pictures(done, shape, bias):
    check(model_of(random(40, 3, 16, 16), bias=bias), shape)
    assert done
    assert all(done)


@pytest.mark.parametrize("patch", [(1, 12, 12), (3, 8, 8), (4, 14, 7), (2, 1, 64), (3, 32, 32)])
def test_patches_of_any_size(done, patch):
    check(model_of(random(33, *patch)), (2, patch[0], 4 * patch[1] + 1, 3 * patch[2]))
    assert all(done)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 3, 8, 48, 64), (2, 3, 5, 33, 47), (1, 3, 2, 16, 16)])
def test_patches_of_films(done, shape, bias):
    check(model_of(random(40, 3, 2, 16, 16), bias=bias), shape)
    assert done
    assert all(done)


def test_a_film_whose_pictures_come_first(done):
    check(model_of(random(24, 3, 2, 8, 8), before=[0, 2, 1, 3, 4]), (1, 4, 3, 32, 24))
    assert all(done)


def test_films_of_another_length_in_each_run():
    check(model_of(random(24, 3, 2, 8, 8)), *[(1, 3, 4 + 2 * step, 32, 24) for step in range(8)], runs=1)


def test_a_picture_that_lies_otherwise(done):
    check(model_of(random(24, 3, 16, 16), before=[0, 3, 1, 2]), (2, 64, 48, 3))
    assert all(done)


def test_what_follows_a_row_major_result_and_another_size_in_each_run():
    check(model_of(random(24, 3, 16, 16), behind=()), (2, 3, 64, 48))
    check(model_of(random(24, 3, 16, 16), activation="Relu"), (2, 3, 64, 48))
    check(model_of(random(24, 3, 16, 16)), *[(1, 3, 64 + 8 * step, 48) for step in range(12)], runs=1)


@pytest.mark.parametrize(("weight", "attributes"), [((24, 8, 16, 16), {}), ((24, 3, 16, 16), {"pads": [1, 1, 1, 1]})])
def test_others_are_left_to_other_kernels(done, weight, attributes):
    check(model_of(random(*weight), **attributes), (1, weight[1], 64, 64))
    assert not done


def test_a_picture_without_a_patch():
    session = ort.InferenceSession(model_of(random(24, 3, 16, 16), behind=()), providers=["CPUExecutionProvider"])
    with pytest.raises(ort.api.OrtSdkError):
        session.run(None, {"x": random(1, 3, 8, 8)})
