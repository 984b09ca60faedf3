"""ai.onnx.ml without trees: against onnxruntime, scikit-learn, and formulas."""

from __future__ import annotations

import array_api_strict
import numpy as np
import onnx
import pytest
from onnx import helper
from sklearn import svm

from ort_sdk.api import InvalidArgument, InvalidGraph, KernelInfo, KernelRegistry, NodeArg, TensorElementType, tensor_type
from ort_sdk.opset import add_opset
from tests.opset.one_node import compare, make_model, run_reference, run_sdk

DOMAIN = "ai.onnx.ml"
RNG = np.random.default_rng(2)
FLOAT = int(TensorElementType.FLOAT)
TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"]


def strings(*values):
    return np.array(values, dtype=object)


def check(op_type, x, outputs=1, opset=1, **attributes):
    return compare(op_type, x if isinstance(x, list) else [x], outputs, domain=DOMAIN, opset=opset, attributes=attributes)


def refused(error, message, op_type, x, outputs=1, opset=1, **attributes):
    inputs = x if isinstance(x, list) else [x]
    # of classifiers, the first of two outputs are labels
    types = [FLOAT] if outputs == 1 else [onnx.TensorProto.INT64, FLOAT]
    made, feeds = make_model(op_type, inputs, outputs, domain=DOMAIN, opset=opset, attributes=attributes, output_types=types)
    with pytest.raises(error, match=message):
        run_sdk(made, feeds)


def kernel(op_type, version, input_types, output_types=(), library=np, **attributes):
    registry = KernelRegistry("TestExecutionProvider")
    add_opset(registry, library)
    row = next(row for row in registry.candidates(DOMAIN, op_type) if row.kernel_def.matches_version(version))
    inputs = tuple(NodeArg(f"x{index}", kind) for index, kind in enumerate(input_types))
    outputs = tuple(NodeArg(f"y{index}", kind) for index, kind in enumerate(output_types))
    return row.create(KernelInfo(op_type, version, DOMAIN, attributes=attributes, inputs=inputs, outputs=outputs)).compute


@pytest.mark.parametrize("x", [np.arange(3.0), np.arange(12.0).reshape(2, 2, 3), strings("a", "b", "c").reshape(1, 3)])
@pytest.mark.parametrize("indices", [np.array([2, 0, 0]), np.array([[1]])])
def test_array_feature_extractor(x, indices):
    check("ArrayFeatureExtractor", [x, indices])


@pytest.mark.parametrize("index", [3, -1])
def test_array_feature_extractor_refuses_indices_outside(index):
    refused(InvalidArgument, r"in \[0, 3\)", "ArrayFeatureExtractor", [np.arange(3, dtype=np.float32), np.array([index])])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_binarizer(dtype):
    x = np.array([[-2, -1, 0], [1, 2, 3]], dtype=dtype)
    element_type = tensor_type(TensorElementType.from_numpy_dtype(dtype))
    for threshold in (0.0, 1.5, -1.5, 2.0):
        y = kernel("Binarizer", 1, [element_type], [element_type], threshold=threshold)(x)
        np.testing.assert_array_equal(y, (x > threshold).astype(dtype), strict=True)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_normalizer(norm, dtype):
    check("Normalizer", np.array([[1, -4, 2], [-1, -2, -3], [0, 0, 0]], dtype=dtype), norm=norm)
    check("Normalizer", np.array([1, -4, 2], dtype=dtype), norm=norm)


def test_scaler():
    for x in (RNG.standard_normal((4, 3)).astype(np.float32), np.arange(6).reshape(2, 3), np.arange(3, dtype=np.int32)):
        check("Scaler", x, scale=[2.0, 3.0, 0.5], offset=[1.0, -1.0, 0.0])
        check("Scaler", x, scale=[2.0], offset=[1.0])
    refused(InvalidGraph, "2 scales and 1 offsets", "Scaler", np.arange(2.0), scale=[1.0, 2.0], offset=[1.0])
    refused(InvalidArgument, "must have 2 features", "Scaler", np.arange(3.0), scale=[1.0, 2.0], offset=[1.0, 2.0])


def test_imputer():
    x = np.array([[np.nan, 9], [3, np.nan]], dtype=np.float32)
    check("Imputer", x, imputed_value_floats=[2.0, 3.0], replaced_value_float=float("nan"))
    check("Imputer", x, imputed_value_floats=[2.0], replaced_value_float=9.0)
    check("Imputer", np.array([[0, 9], [3, 0]]), imputed_value_int64s=[7, 8])
    refused(InvalidGraph, "imputed_value_floats must be given", "Imputer", x, imputed_value_int64s=[1])


def test_feature_vectorizer():
    x, y = RNG.standard_normal((2, 3)), RNG.standard_normal((2, 1))
    check("FeatureVectorizer", [x, y], inputdimensions=[2, 3])
    check("FeatureVectorizer", [x, y], inputdimensions=[3, 1])
    check("FeatureVectorizer", [x[0], y[:, 0]], inputdimensions=[3, 2])
    refused(InvalidArgument, "same number of rows", "FeatureVectorizer", [x, y[:, 0]], inputdimensions=[3, 2])


def test_features_over_the_array_api_standard():
    x = np.array([[1, -4, 2], [0, 0, 0]], dtype=np.float32)
    cases = [
        ("Binarizer", {"threshold": 0.5}),
        ("Normalizer", {"norm": "L2"}),
        ("Scaler", {"scale": [2.0], "offset": [1.0]}),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0, 3.0]}),
        ("FeatureVectorizer", {"inputdimensions": [4]}),
    ]
    for op_type, attributes in cases:
        made = [
            kernel(op_type, 1, ["tensor(float)"], ["tensor(float)"], library, **attributes)(library.asarray(x))
            for library in (np, array_api_strict)
        ]
        np.testing.assert_array_equal(np.asarray(made[1]), made[0])
    extract = kernel("ArrayFeatureExtractor", 1, ["tensor(float)", "tensor(int64)"], [], array_api_strict)
    np.testing.assert_array_equal(np.asarray(extract(array_api_strict.asarray(x), np.array([2, 0]))), x[:, [2, 0]])


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ({"keys_strings": ["a", "b"]}, {"values_int64s": [5, 6]}),
        ({"keys_strings": ["a", "b"]}, {"values_strings": ["x", "y"], "default_string": "?"}),
        ({"keys_int64s": [7, -3]}, {"values_floats": [0.5, 1.5]}),
        ({"keys_int64s": [7, -3]}, {"values_strings": ["x", "y"]}),
        ({"keys_floats": [0.0, 2.5]}, {"values_int64s": [5, 6], "default_int64": 9}),
        ({"keys_floats": [0.0, 2.5]}, {"values_floats": [0.5, 1.5], "default_float": 4.0}),
    ],
)
@pytest.mark.parametrize("opset", [2, 4])
def test_label_encoder(keys, values, opset):
    (name,) = keys
    inputs = {
        "keys_strings": strings("b", "q", "a"),
        "keys_int64s": np.array([-3, 0, 7]),
        "keys_floats": np.float32([2.5, -0.0, 1]),
    }
    check("LabelEncoder", inputs[name].reshape(3, 1), opset=opset, **keys, **values)


def test_label_encoder_1():
    check("LabelEncoder", strings("b", "q", "a"), classes_strings=["a", "b"])
    check("LabelEncoder", np.array([1, 0, 2, -1]), classes_strings=["a", "b"], default_string="?")


def test_label_encoder_takes_nan_for_a_key_and_the_first_of_equal_keys():
    x = np.array([np.nan, 1.0], dtype=np.float32)
    attributes = {"keys_floats": [float("nan"), 1.0, 1.0], "values_int64s": [3, 4, 5]}
    encode = kernel("LabelEncoder", 4, ["tensor(float)"], ["tensor(int64)"], **attributes)
    assert encode(x).tolist() == [3, 4]


def test_label_encoder_refuses_lists_of_different_lengths():
    refused(
        InvalidGraph, "must be equally long", "LabelEncoder", np.array([1]), opset=2, keys_int64s=[1], values_floats=[1.0, 2.0]
    )
    refused(InvalidGraph, "exactly one of keys_", "LabelEncoder", np.array([1]), opset=2, values_floats=[1.0])


def test_category_mapper():
    check("CategoryMapper", np.array([[0, 1, 7]]), cats_strings=["a", "b"], cats_int64s=[7, 0])
    check("CategoryMapper", strings("a", "z"), cats_strings=["a", "b"], cats_int64s=[7, 0], default_int64=3)


def test_one_hot_encoder():
    check("OneHotEncoder", np.float32([[1.7, 2, 9]]), cats_int64s=[1, 2, 3])
    check("OneHotEncoder", strings("a", "x"), cats_strings=["a", "b"])
    refused(InvalidArgument, "no known category", "OneHotEncoder", np.array([9]), cats_int64s=[1], zeros=0)


def test_cast_map():
    for cast_to, want in (("TO_FLOAT", [5.0, 2.0]), ("TO_INT64", [5, 2]), ("TO_STRING", ["5.000000", "2.000000"])):
        dense = kernel("CastMap", 1, ["map(int64,float)"], [], cast_to=cast_to)
        assert dense({3: 2.0, 1: 5.0}).tolist() == [want]
    sparse = kernel("CastMap", 1, ["map(int64,string)"], [], map_form="SPARSE", max_map=4)
    assert sparse({3: "2.5", 1: "5"}).tolist() == [[0, 5, 0, 2.5]]
    for key, message in ((4, "not below max_map"), (-1, "negative")):
        with pytest.raises(InvalidArgument, match=message):
            sparse({key: "1"})
    with pytest.raises(InvalidArgument, match="is no number"):
        sparse({1: "one"})


def test_dict_vectorizer_and_zip_map():
    vectorize = kernel("DictVectorizer", 1, ["map(string,float)"], ["tensor(float)"], string_vocabulary=["a", "c", "b"])
    y = vectorize({"a": 4.0, "b": 8.0})
    np.testing.assert_array_equal(y, np.float32([[4, 0, 8]]), strict=True)
    zipped = kernel("ZipMap", 1, ["tensor(float)"], [], classlabels_int64s=[7, 9])
    assert zipped(np.float32([[1, 2], [3, 4]])) == [{7: 1.0, 9: 2.0}, {7: 3.0, 9: 4.0}]
    with pytest.raises(InvalidArgument, match="one column for each of the 2 labels"):
        zipped(np.zeros((2, 3), np.float32))


@pytest.mark.parametrize("transform", [*TRANSFORMS, "PROBIT"])
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(transform, targets):
    x = RNG.uniform(0.1, 0.2, (5, 2)).astype(np.float32)
    coefficients = RNG.uniform(0.5, 1, 2 * targets).tolist()
    attributes = {"coefficients": coefficients, "targets": targets, "post_transform": transform}
    check("LinearRegressor", x, **attributes)
    check("LinearRegressor", x, intercepts=[0.1] * targets, **attributes)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_linear_classifier(transform, rows, dtype):
    x = (RNG.standard_normal((6, 4)) * 3).astype(dtype)
    labels = [["n", "y"], [5, 6], ["a", "b", "c"]][rows - 1]
    name = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_ints"
    coefficients, intercepts = RNG.standard_normal(4 * rows).tolist(), RNG.standard_normal(rows).tolist()
    given = {"coefficients": coefficients, "intercepts": intercepts, "post_transform": transform, name: labels}
    check("LinearClassifier", x, 2, **given)


def test_linear_classifier_narrower_than_its_coefficients():
    x, coefficients = RNG.normal(size=(3, 2)).astype(np.float32), RNG.normal(size=12).tolist()
    attributes = {"classlabels_ints": [0, 1, 2], "intercepts": [0.2, 0.5, -0.9], "post_transform": "LOGISTIC"}
    check("LinearClassifier", x, 2, coefficients=coefficients, **attributes)


def test_linear_operators_refuse_what_does_not_fit():
    x = np.zeros((2, 3), np.float32)
    refused(InvalidArgument, r"must be \[N, 2\]", "LinearRegressor", x, coefficients=[1.0, 2.0])
    refused(InvalidGraph, "3 coefficients", "LinearRegressor", x, coefficients=[1.0, 2.0, 3.0], targets=2)
    refused(InvalidGraph, "3 class labels", "LinearClassifier", x, 2, coefficients=[1.0] * 3, classlabels_ints=[1, 2, 3])
    refused(InvalidGraph, "post_transform", "LinearRegressor", x, coefficients=[1.0] * 3, post_transform="EXP")


def svm_attributes(model, kernel_type):
    kernel_type = {"linear": "LINEAR", "poly": "POLY", "rbf": "RBF", "sigmoid": "SIGMOID"}[kernel_type]
    return {
        "kernel_type": kernel_type,
        "kernel_params": [float(model._gamma), float(model.coef0), float(model.degree)],
        "support_vectors": model.support_vectors_.ravel().tolist(),
        "coefficients": model.dual_coef_.ravel().tolist(),
        "rho": model.intercept_.tolist(),
    }


@pytest.mark.parametrize("kernel_type", ["linear", "poly", "rbf", "sigmoid"])
def test_svm_regressor(kernel_type):
    x = RNG.standard_normal((40, 3))
    model = svm.SVR(kernel=kernel_type, coef0=0.3, degree=2).fit(x, x @ [1, 2, -1])
    attributes = svm_attributes(model, kernel_type) | {"n_supports": len(model.support_)}
    (y,) = check("SVMRegressor", x.astype(np.float32), **attributes)
    np.testing.assert_allclose(y[:, 0], model.predict(x), rtol=1e-3, atol=1e-3)
    x += 2
    outlier = svm.OneClassSVM(kernel=kernel_type, coef0=0.3, degree=2, nu=0.3).fit(x)
    attributes = svm_attributes(outlier, kernel_type) | {"n_supports": len(outlier.support_), "one_class": 1}
    # Some support vectors lie on the border itself: which side float32 puts them on is chance.
    decided = x[np.abs(outlier.decision_function(x)) > 1e-3]
    assert len(decided) > len(x) // 2
    check("SVMRegressor", decided.astype(np.float32), **attributes)


@pytest.mark.parametrize("kernel_type", ["linear", "poly", "rbf", "sigmoid"])
@pytest.mark.parametrize("classes", [2, 3, 4])
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("with_probabilities", [False, True])
def test_svm_classifier(kernel_type, classes, transform, with_probabilities):
    x = RNG.standard_normal((60, 3))
    labels = np.floor((x[:, 0] - x[:, 0].min()) / np.ptp(x[:, 0]) * classes).clip(0, classes - 1).astype(int) * 10
    model = svm.SVC(kernel=kernel_type, coef0=0.3, degree=2).fit(x, labels)
    sign = -1 if classes == 2 else 1
    attributes = svm_attributes(model, kernel_type)
    attributes["coefficients"] = (sign * model.dual_coef_).ravel().tolist()
    attributes["rho"] = (sign * model.intercept_).tolist()
    attributes |= {"vectors_per_class": model.n_support_.tolist(), "classlabels_ints": model.classes_.tolist()}
    if with_probabilities:
        pairs = classes * (classes - 1) // 2
        attributes |= {"prob_a": [-1.5] * pairs, "prob_b": [0.2] * pairs}
    y, _ = check("SVMClassifier", x.astype(np.float32), 2, post_transform=transform, **attributes)
    np.testing.assert_array_equal(y, model.predict(x))


@pytest.mark.parametrize("classes", [2, 3])
def test_svm_classifier_without_support_vectors(classes):
    x = RNG.standard_normal((20, 3)).astype(np.float32)
    coefficients = RNG.standard_normal(3 * classes).tolist()
    given = {"coefficients": coefficients, "rho": [0.1], "kernel_params": [0.0, 0.0, 0.0]}
    check("SVMClassifier", x, 2, classlabels_strings=["a", "b", "c"][:classes], **given)


def test_svm_refuses_what_does_not_fit():
    x = np.zeros((2, 2), np.float32)
    given = {"coefficients": [1.0, 2.0], "rho": [0.1], "support_vectors": [1.0] * 4, "n_supports": 2}
    refused(InvalidGraph, "kernel_type 'COSINE'", "SVMRegressor", x, **{**given, "kernel_type": "COSINE"})
    refused(InvalidGraph, "1 coefficients", "SVMRegressor", x, **{**given, "coefficients": [1.0]})
    refused(InvalidGraph, "do not make 2 vectors", "SVMRegressor", x, **{**given, "support_vectors": [1.0] * 3})
    refused(InvalidArgument, r"must be \[N, 2\]", "SVMRegressor", np.zeros((2, 3), np.float32), **given)
    classes = {"vectors_per_class": [1, 1], "classlabels_ints": [0, 1], "support_vectors": [1.0] * 4, "coefficients": [1.0, 2.0]}
    refused(InvalidGraph, "rho has 2 values", "SVMClassifier", x, 2, **classes, rho=[0.1, 0.2])
    refused(InvalidGraph, "3 coefficients are given", "SVMClassifier", x, 2, **{**classes, "coefficients": [1.0] * 3}, rho=[0.1])


@pytest.mark.parametrize(
    "labels",
    [
        {"classlabels_int64s": [7, 9]},
        {"classlabels_int64s": [9, -7]},
        {"classlabels_int64s": [3, 4, 3]},
        {"classlabels_int64s": [5]},
        {"classlabels_strings": ["a", "b"]},
        {"classlabels_strings": ["no", "yes", "maybe"]},
        {"classlabels_strings": ["a", "b", "c"]},
        {"classlabels_strings": ["z", "é", "B", "a"]},
    ],
)
def test_zip_map_in_a_session(labels):
    key = onnx.TensorProto.INT64 if "classlabels_int64s" in labels else onnx.TensorProto.STRING
    value_type = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(key, value_type))
    (names,) = labels.values()
    scores = np.arange(2 * len(names), dtype=np.float32).reshape(2, -1)
    model, feeds = make_model("ZipMap", [scores], domain=DOMAIN, attributes=labels)
    model.graph.output[0].type.CopyFrom(kind)
    found, expected = run_sdk(model, feeds), run_reference(model, feeds)
    assert found == expected
    assert [[*pairs.items()] for pairs in found[0]] == [[*pairs.items()] for pairs in expected[0]]


def test_maps_are_fed():
    attributes = {"string_vocabulary": ["a", "c", "b"]}
    model, _ = make_model("DictVectorizer", [np.zeros(1, np.float32)], domain=DOMAIN, attributes=attributes, output_types=[1])
    value_type = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
    model.graph.input[0].type.CopyFrom(helper.make_map_type_proto(onnx.TensorProto.STRING, value_type))
    feeds = {"x0": {"a": 4.0, "b": 8.0}}
    np.testing.assert_array_equal(run_sdk(model, feeds)[0], run_reference(model, feeds)[0], strict=True)


EXTREME = np.iinfo(np.int64)


@pytest.mark.parametrize(
    "keys", [[7], [3, -5, 9, 40], [EXTREME.min, EXTREME.min + 3], [EXTREME.max - 1, EXTREME.max], [1, 10**9]]
)
@pytest.mark.parametrize("shape", [(0,), (6,), (5, 4)])
def test_integer_keys_wherever_they_lie(keys, shape):
    known = np.array([*keys, keys[0], 0, EXTREME.min, EXTREME.max, keys[-1] - 1][:6])
    x = np.resize(known, shape)
    wanted = {key: position * 10 for position, key in enumerate(keys)}
    (found,) = check("LabelEncoder", x, opset=2, keys_int64s=keys, values_int64s=list(wanted.values()), default_int64=-3)
    np.testing.assert_array_equal(
        found, np.array([wanted.get(value, -3) for value in x.ravel().tolist()], np.int64).reshape(shape)
    )


@pytest.mark.parametrize("opset", [2, 4])
@pytest.mark.parametrize("keys", [np.array([5, 6, 5]), np.float32([5, 6, 5]), strings("5", "6", "5")])
def test_the_first_of_equal_keys_counts(opset, keys):
    name = {"i": "keys_int64s", "f": "keys_floats", "O": "keys_strings"}[keys.dtype.kind]
    (found,) = check("LabelEncoder", keys[:2], opset=opset, **{name: keys.tolist()}, values_int64s=[1, 2, 3])
    assert found.tolist() == [1, 2]


def test_one_hot_rows_of_many_elements():
    x = RNG.integers(-3, 20, (40, 3))
    (found,) = check("OneHotEncoder", x, cats_int64s=list(range(2, 15)))
    np.testing.assert_array_equal(found, (x[..., None] == np.arange(2, 15)).astype(np.float32))
