"""Support vector machines by a compiled task, beside the shared set in float64 and onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from ort_sdk_cpu.platform import libraries

import ort_sdk
from ort_sdk.api import InvalidArgument, KernelInfo, NodeArg, TensorElementType, tensor_type
from ort_sdk.opset.ml.svm import svm_regressor
from ort_sdk.opset.numpy_namespace import NumpyNamespace

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="machines are compiled")
DOMAIN = "ai.onnx.ml"
KERNELS = {"LINEAR": [0.3, 0.2, 3.0], "POLY": [0.1, 0.5, 3.0], "RBF": [0.2, 0.0, 0.0], "SIGMOID": [0.05, 0.1, 0.0]}


def _floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _model(op_type, outputs, **attributes):
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], list(outputs), domain=DOMAIN, **attributes)],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", "F"])],
        [helper.make_tensor_value_info(name, element_type, None) for name, element_type in outputs.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def _regressor(kind, vectors, features, **options):
    return {
        "coefficients": _floats(vectors, seed=1).tolist(),
        "kernel_params": KERNELS[kind],
        "kernel_type": kind,
        "n_supports": vectors,
        "rho": [0.3],
        "support_vectors": _floats(vectors * features, seed=2).tolist(),
        **options,
    }


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize(("rows", "vectors", "features"), [(40, 37, 5), (1, 200, 16), (700, 16, 1)])
@pytest.mark.parametrize("one_class", [0, 1])
def test_regressors_are_as_exact_as_their_type(kind, rows, vectors, features, one_class):
    attributes, x = _regressor(kind, vectors, features, one_class=one_class), _floats(rows, features)
    found = ort_sdk.InferenceSession(_model("SVMRegressor", {"y": TensorProto.FLOAT}, **attributes)).run(None, {"x": x})[0]
    argument = NodeArg("x", tensor_type(TensorElementType.FLOAT), x.shape)
    info = KernelInfo("SVMRegressor", 1, DOMAIN, attributes=attributes, inputs=(argument,))
    expected = svm_regressor(info, NumpyNamespace())(x)
    assert (found.dtype, found.shape) == (np.float32, (rows, 1))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("has_probabilities", [False, True])
@pytest.mark.parametrize("has_names", [False, True])
def test_classifiers(kind, classes, has_probabilities, has_names):
    sizes, features, pairs = [20 + index for index in range(classes)], 7, classes * (classes - 1) // 2
    vectors = sum(sizes)
    attributes = _regressor(kind, vectors, features)
    del attributes["n_supports"]
    attributes |= {"coefficients": _floats(vectors * (classes - 1), seed=3).tolist(), "vectors_per_class": sizes}
    attributes |= {"rho": _floats(pairs, seed=4).tolist()}
    attributes |= (
        {"classlabels_strings": [f"class {index}" for index in range(classes)]}
        if has_names
        else {"classlabels_ints": list(range(10, 10 + classes))}
    )
    if has_probabilities:
        attributes |= {"prob_a": [-1.0] * pairs, "prob_b": [0.1] * pairs}
    outputs = {"label": TensorProto.STRING if has_names else TensorProto.INT64, "scores": TensorProto.FLOAT}
    model, x = _model("SVMClassifier", outputs, **attributes), _floats(60, features)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    session = ort_sdk.InferenceSession(model)
    for _ in range(3):
        label, scores = session.run(None, {"x": x})
        np.testing.assert_array_equal(label, expected[0])
        np.testing.assert_allclose(scores, expected[1], rtol=0, atol=5e-6 * np.abs(expected[1]).max())


@pytest.mark.parametrize("transform", ["LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("rows", [1, 40])
def test_transforms_behind_the_task(transform, classes, rows):
    pairs = classes * (classes - 1) // 2
    attributes = _regressor("RBF", 40 * classes, 5) | {"classlabels_ints": list(range(classes)), "post_transform": transform}
    del attributes["n_supports"]
    coefficients = _floats(40 * classes * (classes - 1), seed=3) / 10
    attributes |= {"coefficients": coefficients.tolist(), "vectors_per_class": [40] * classes, "rho": [0.1] * pairs}
    model, x = _model("SVMClassifier", {"label": TensorProto.INT64, "scores": TensorProto.FLOAT}, **attributes), _floats(rows, 5)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    session = ort_sdk.InferenceSession(model)
    for _ in range(3):
        label, scores = session.run(None, {"x": x})
        np.testing.assert_array_equal(label, expected[0])
        np.testing.assert_allclose(scores, expected[1], rtol=0, atol=1e-5)


def test_rows_of_another_width():
    session = ort_sdk.InferenceSession(_model("SVMRegressor", {"y": TensorProto.FLOAT}, **_regressor("RBF", 90, 6)))
    with pytest.raises(InvalidArgument, match=r"must be \[N, 6\]"):
        session.run(None, {"x": _floats(50, 5)})
