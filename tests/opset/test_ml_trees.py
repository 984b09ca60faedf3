"""Tree ensembles: random trees against onnxruntime and against a walk of one row at a time, and trees that are none."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper
from sklearn import ensemble

from ort_sdk.api import InvalidArgument, InvalidGraph, TensorElementType
from tests.opset.one_node import compare, make_model, run_sdk

DOMAIN = "ai.onnx.ml"
FLOAT, INT64 = int(TensorElementType.FLOAT), int(TensorElementType.INT64)
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def random_trees(seed, trees=7, depth=6, features=4, modes=("BRANCH_LEQ",), missing=False):
    """Attributes ``nodes_*`` of random unbalanced trees on features with few values, and their leaves as (tree, node)."""
    rng = np.random.default_rng(seed)
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    nodes = {f"nodes_{name}": [] for name in names}
    leaves = []
    for tree in range(trees):
        levels, count = [0], 1
        while levels:
            level = levels.pop(0)
            is_leaf = level == depth or (level > 0 and rng.random() < 0.3)
            node = nodes["nodes_treeids"].count(tree)
            children = (0, 0) if is_leaf else (count, count + 1)
            row = (tree, node, int(rng.integers(features)), float(rng.integers(-3, 4)), str(rng.choice(modes)), *children)
            row = (*row[:4], "LEAF", 0, 0) if is_leaf else row
            for name, value in zip(names, row, strict=True):
                nodes[f"nodes_{name}"].append(value)
            if is_leaf:
                leaves.append((tree, node))
            else:
                levels += [level + 1, level + 1]
                count += 2
    if missing:
        nodes["nodes_missing_value_tracks_true"] = rng.integers(0, 2, len(nodes["nodes_treeids"])).tolist()
    return nodes, leaves


def rows(seed, count=50, features=4, dtype=np.float32, nan=False):
    rng = np.random.default_rng(seed + 100)
    x = rng.integers(-3, 4, (count, features)).astype(dtype)
    if nan:
        x[rng.random(x.shape) < 0.2] = np.nan
    return x


def votes(leaves, prefix, targets, seed, low=-1.0):
    rng = np.random.default_rng(seed + 200)
    return {
        f"{prefix}_treeids": [tree for tree, _ in leaves],
        f"{prefix}_nodeids": [node for _, node in leaves],
        f"{prefix}_ids": rng.integers(0, targets, len(leaves)).tolist(),
        f"{prefix}_weights": rng.uniform(low, 1, len(leaves)).tolist(),
    }


def check(op_type, x, outputs=1, opset=3, **attributes):
    return compare(op_type, [x], outputs, domain=DOMAIN, opset=opset, attributes=attributes)


def refused(error, message, op_type, attributes, x=None, outputs=1, opset=3):
    x = np.zeros((2, 4), np.float32) if x is None else x
    types = [INT64, FLOAT] if outputs == 2 else [FLOAT]
    made, feeds = make_model(op_type, [x], outputs, domain=DOMAIN, opset=opset, attributes=attributes, output_types=types)
    with pytest.raises(error, match=message):
        run_sdk(made, feeds)


@pytest.mark.parametrize("opset", [1, 3])
@pytest.mark.parametrize("modes", [[mode] for mode in MODES] + [MODES])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("targets", [1, 3])
def test_regressor(opset, modes, missing, targets):
    nodes, leaves = random_trees(1, modes=modes, missing=missing)
    x = rows(1, nan=missing)
    check("TreeEnsembleRegressor", x, opset=opset, n_targets=targets, **nodes, **votes(leaves, "target", targets, 1))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_aggregates_and_transforms(aggregate, transform):
    nodes, leaves = random_trees(2)
    each = votes([leaf for leaf in leaves for _ in range(2)], "target", 2, 2) | {"target_ids": [0, 1] * len(leaves)}
    given = {"n_targets": 2, "base_values": [0.5, -0.25], "aggregate_function": aggregate, "post_transform": transform}
    check("TreeEnsembleRegressor", rows(2), **nodes, **each, **given)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.int32])
def test_other_inputs(dtype):
    nodes, leaves = random_trees(3)
    check(
        "TreeEnsembleClassifier", rows(3, dtype=dtype), 2, **nodes, **votes(leaves, "class", 3, 3), classlabels_int64s=[7, 8, 9]
    )


def test_splits_in_double_precision():
    attributes, leaves = random_trees(4, trees=1, depth=1)
    tiny = 1 + 1e-12
    attributes["nodes_values_as_tensor"] = numpy_helper.from_array(np.array([tiny, 0.0, 0.0]))
    del attributes["nodes_values"]
    attributes["nodes_featureids"] = [0, 0, 0]
    weights = numpy_helper.from_array(np.array([1.0, 2.0]))
    given = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights_as_tensor": weights}
    (y,) = check("TreeEnsembleRegressor", np.array([[1.0], [tiny], [1 + 2e-12]]), n_targets=1, **attributes, **given)
    assert y.ravel().tolist() == [1, 1, 2]
    assert len(leaves) == 2


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("labels", [[5, 6, 7], ["a", "b", "c"]])
def test_classifier(transform, labels):
    nodes, leaves = random_trees(5, modes=["BRANCH_LT"], missing=True)
    name = "classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"
    given = {name: labels, "post_transform": transform, "base_values": [0.1, 0.2, 0.3]}
    check("TreeEnsembleClassifier", rows(5, nan=True), 2, **nodes, **votes(leaves, "class", 3, 5), **given)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("low", [-1.0, 0.0])
@pytest.mark.parametrize(("voted", "base"), [(0, None), (1, None), (0, [0.05])])
def test_two_classes_with_votes_for_one(transform, low, voted, base):
    nodes, leaves = random_trees(6, trees=3)
    each = votes(leaves, "class", 1, 6, low) | {"class_ids": [voted] * len(leaves)}
    each["class_weights"] = [weight / 3 for weight in each["class_weights"]]
    given = {"classlabels_int64s": [5, 6], "post_transform": transform} | ({"base_values": base} if base else {})
    check("TreeEnsembleClassifier", rows(6), 2, **nodes, **each, **given)


def test_two_classes_with_votes_for_both_compare_scores():
    nodes, leaves = random_trees(7, trees=3)
    each = votes([leaf for leaf in leaves for _ in range(2)], "class", 2, 7, 0.0) | {"class_ids": [0, 1] * len(leaves)}
    attributes = {**nodes, **each, "classlabels_int64s": [5, 6]}
    given = {"domain": DOMAIN, "opset": 3, "attributes": attributes, "output_types": [INT64, FLOAT]}
    made, feeds = make_model("TreeEnsembleClassifier", [rows(7)], 2, **given)
    labels, scores = run_sdk(made, feeds)
    np.testing.assert_array_equal(labels, np.array([5, 6])[scores.argmax(axis=1)])


def forest_attributes(model):
    """``nodes_*`` of a scikit-learn forest, and (tree, node, values) of its leaves."""
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    table = []
    leaves = []
    for number, estimator in enumerate(model.estimators_):
        tree = estimator.tree_
        for node in range(tree.node_count):
            if tree.children_left[node] < 0:
                table.append((number, node, 0, 0.0, "LEAF", 0, 0))
                leaves.append((number, node, tree.value[node][0]))
            else:
                split = float(np.nextafter(np.float32(tree.threshold[node]), np.float32(-np.inf)))
                split = (
                    float(np.float32(tree.threshold[node])) if np.float32(tree.threshold[node]) <= tree.threshold[node] else split
                )
                children = int(tree.children_left[node]), int(tree.children_right[node])
                table.append((number, node, int(tree.feature[node]), float(split), "BRANCH_LEQ", *children))
    return {f"nodes_{name}": list(column) for name, column in zip(names, zip(*table, strict=True), strict=True)}, leaves


def test_forest_of_scikit_learn():
    x = np.random.default_rng(8).standard_normal((600, 5)).astype(np.float32)
    labels = (x[:, 0] * x[:, 1] > 0).astype(int) + 2 * (x[:, 2] > 0.5)
    model = ensemble.RandomForestClassifier(20, random_state=0).fit(x, labels)
    nodes, leaves = forest_attributes(model)
    rows_of_votes = [(tree, node, index, value / 20) for tree, node, values in leaves for index, value in enumerate(values)]
    trees, node_ids, ids, weights = (list(column) for column in zip(*rows_of_votes, strict=True))
    given = {"class_treeids": trees, "class_nodeids": node_ids, "class_ids": ids, "class_weights": [float(w) for w in weights]}
    y, scores = check("TreeEnsembleClassifier", x, 2, classlabels_int64s=[0, 1, 2, 3], **nodes, **given)
    np.testing.assert_allclose(scores, model.predict_proba(x), atol=1e-5)
    assert (y == model.predict(x)).mean() > 0.99


def ensemble_5(dtype=np.float32, **changes):
    """A tree with a membership test, a comparison below it, and shared leaves."""
    tensor = numpy_helper.from_array
    attributes = {
        "n_targets": 2,
        "tree_roots": [0, 2],
        "nodes_modes": tensor(np.array([6, 0, 6], dtype=np.uint8)),
        "nodes_featureids": [0, 1, 0],
        "nodes_splits": tensor(np.array([0, 0.5, 0], dtype=dtype)),
        "nodes_truenodeids": [1, 0, 2],
        "nodes_trueleafs": [0, 1, 1],
        "nodes_falsenodeids": [2, 1, 0],
        "nodes_falseleafs": [1, 1, 1],
        "membership_values": tensor(np.array([1, 7, -2, 3, 9, np.nan, 4, np.nan], dtype=dtype)),
        "leaf_targetids": [0, 1, 0],
        "leaf_weights": tensor(np.array([1, 10, 100], dtype=dtype)),
    }
    return {**attributes, **changes}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aggregate", [0, 1, 2, 3])
def test_ensemble_5_with_membership_tests(dtype, aggregate):
    members = np.array([1, 7, -2, 3, 9, 4, 0, 5, np.nan])
    x = np.stack([np.repeat(members, 3), np.tile([0.5, 0.75, np.nan], members.size)], axis=1).astype(dtype)
    check("TreeEnsemble", x, opset=5, **ensemble_5(dtype, aggregate_function=aggregate))


def test_members_need_not_be_whole_numbers():
    values = numpy_helper.from_array(np.array([1.5, 0.25, np.nan, 4.75, np.nan], dtype=np.float32))
    given = {"domain": DOMAIN, "opset": 5, "attributes": ensemble_5(membership_values=values), "output_types": [FLOAT]}
    made, feeds = make_model("TreeEnsemble", [np.float32([[1.5, 0], [0.25, 1], [1, 0], [4.75, 0]])], **given)
    assert run_sdk(made, feeds)[0].tolist() == [[2, 0], [1, 10], [101, 0], [200, 0]]


def test_ensemble_5_of_one_leaf():
    tensor = numpy_helper.from_array
    changes = {
        "tree_roots": [0],
        "nodes_modes": tensor(np.array([0], dtype=np.uint8)),
        "nodes_splits": tensor(np.array([0], dtype=np.float32)),
        **{f"nodes_{name}": [0] for name in ("featureids", "truenodeids", "falsenodeids")},
        **{f"nodes_{name}": [1] for name in ("trueleafs", "falseleafs")},
        "leaf_targetids": [1],
        "leaf_weights": tensor(np.array([5], dtype=np.float32)),
    }
    attributes = ensemble_5(**changes)
    del attributes["membership_values"]
    check("TreeEnsemble", np.zeros((3, 1), np.float32), opset=5, **attributes)


def test_no_rows_and_too_few_features():
    nodes, leaves = random_trees(9)
    attributes = {**nodes, **votes(leaves, "target", 1, 9), "n_targets": 1}
    given = {"domain": DOMAIN, "opset": 3, "attributes": attributes, "output_types": [FLOAT]}
    made, feeds = make_model("TreeEnsembleRegressor", [rows(9, count=0)], **given)
    assert run_sdk(made, feeds)[0].shape == (0, 1)
    refused(InvalidArgument, "features got an input of shape", "TreeEnsembleRegressor", attributes, rows(9, features=1))


STUMP = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0],
    "target_nodeids": [1, 2],
    "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
    "n_targets": 1,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_truenodeids": [7, 0, 0]}, r"nodes_truenodeids\[0\] is 7"),
        ({"nodes_falsenodeids": [-1, 0, 0]}, r"nodes_falsenodeids\[0\] is -1"),
        ({"nodes_featureids": [0, 0]}, "must have 3"),
        ({"nodes_featureids": [-2, 0, 0]}, "feature -2"),
        ({"nodes_values": [0.5]}, "must have 3"),
        ({"nodes_modes": ["BRANCH_LEQ", "LEAF", "TWIG"]}, "TWIG"),
        ({"nodes_nodeids": [0, 1, 1]}, "given twice"),
        ({"nodes_nodeids": [0, -1, 2]}, "must not be negative"),
        ({"nodes_truenodeids": [0, 0, 0]}, "circle"),
        ({"nodes_modes": ["BRANCH_LEQ", "BRANCH_LT", "LEAF"], "nodes_truenodeids": [1, 0, 0]}, "circle"),
        ({"nodes_modes": ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_LT"], "nodes_truenodeids": [1, 2, 1]}, "circle"),
        ({"target_nodeids": [1, 9]}, r"target_nodeids\[1\] is 9"),
        ({"target_treeids": [0, 1]}, r"target_nodeids\[1\] is 2"),
        ({"target_ids": [0, 1]}, r"allowed is \[0, 1\)"),
        ({"target_weights": [1.0]}, "must have 1"),
        ({"base_values": [1.0, 2.0]}, "2 base_values"),
        ({"aggregate_function": "MEDIAN"}, "MEDIAN"),
        ({"post_transform": "EXP"}, "EXP"),
        ({"nodes_missing_value_tracks_true": [1]}, "must have 3"),
    ],
)
def test_what_is_no_tree_is_refused(changes, message):
    refused(InvalidGraph, message, "TreeEnsembleRegressor", {**STUMP, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_truenodeids": [0, 0, 2]}, "circle"),
        ({"nodes_truenodeids": [9, 0, 2]}, r"nodes_truenodeids\[0\] is 9"),
        ({"nodes_falsenodeids": [3, 1, 0]}, r"nodes_falsenodeids\[0\] is 3"),
        ({"tree_roots": [0, 8]}, "branch 8"),
        ({"leaf_targetids": [0, 1, 2]}, r"allowed is \[0, 2\)"),
        ({"leaf_targetids": [0, 1]}, "must have 3"),
        ({"nodes_modes": numpy_helper.from_array(np.array([9, 0, 6], dtype=np.uint8))}, "nodes_modes must be in"),
        ({"membership_values": numpy_helper.from_array(np.array([1, np.nan], dtype=np.float32))}, "holds 1 sets"),
        ({"aggregate_function": 4}, "aggregate_function 4"),
        ({"post_transform": 5}, "post_transform 5"),
    ],
)
def test_what_is_no_ensemble_5_is_refused(changes, message):
    refused(InvalidGraph, message, "TreeEnsemble", ensemble_5(**changes), opset=5)
