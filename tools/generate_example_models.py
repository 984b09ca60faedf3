"""Write the models of ort_sdk.datasets. Needs onnx and scikit-learn (for the iris measurements).

Usage: python tools/generate_example_models.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

FOLDER = Path(__file__).resolve().parents[1] / "ort_sdk" / "datasets"
PETAL_COLUMNS = [2, 3]


def sigmoid() -> onnx.ModelProto:
    shape = [3, 4, 5]
    graph = helper.make_graph(
        [helper.make_node("Sigmoid", ["x"], ["y"])],
        "sigmoid",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    return _model(graph, {"": 13})


def mul_1() -> onnx.ModelProto:
    weights = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
    graph = helper.make_graph(
        [helper.make_node("Mul", ["X", "W"], ["Y"], name="mul_1")],
        "mul_1",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [3, 2])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [3, 2])],
        [numpy_helper.from_array(weights, "W")],
    )
    return _model(graph, {"": 14})


def logreg_iris() -> onnx.ModelProto:
    """Which iris it is, from length and width of its petals."""
    iris = load_iris()
    fitted = LogisticRegression(max_iter=1000).fit(iris.data[:, PETAL_COLUMNS], iris.target)
    labels = [int(label) for label in fitted.classes_]
    classifier = helper.make_node(
        "LinearClassifier",
        ["float_input"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        classlabels_ints=labels,
        coefficients=[round(float(value), 4) for value in fitted.coef_.reshape(-1)],
        intercepts=[round(float(value), 4) for value in fitted.intercept_],
        post_transform="SOFTMAX",
    )
    by_label = helper.make_node("ZipMap", ["scores"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=labels)
    graph = helper.make_graph(
        [classifier, by_label],
        "logreg_iris",
        [helper.make_tensor_value_info("float_input", TensorProto.FLOAT, [3, 2])],
        [
            helper.make_tensor_value_info("label", TensorProto.INT64, [3]),
            helper.make_value_info("probabilities", _sequence_of_maps()),
        ],
    )
    return _model(graph, {"": 13, "ai.onnx.ml": 1})


def _sequence_of_maps() -> onnx.TypeProto:
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    return helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, value))


def _model(graph: onnx.GraphProto, opsets: dict[str, int]) -> onnx.ModelProto:
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, producer_name="ort_sdk", ir_version=7)
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    for make in (sigmoid, mul_1, logreg_iris):
        path = FOLDER / f"{make.__name__}.onnx"
        path.write_bytes(make().SerializeToString(deterministic=True))
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
