"""Large ensembles whose nodes come in any order and with any ids: against onnxruntime, and a walk of one row in one tree."""

import operator

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import ort_sdk
from ort_sdk.api import InvalidGraph
from ort_sdk.api.long_lists import LongList
from tests.loader.ort_files import convert
from tests.opset.one_node import make_model, run_reference, run_sdk
from tests.opset.test_ml_trees import DOMAIN, FLOAT, INT64, MODES, check, random_trees, refused, rows, votes

COMPARISONS = dict(zip(MODES, (operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne), strict=True))
TARGETS = 3


def walked(x, nodes, given):
    """Sums of votes, one row and tree at a time."""
    keys = list(zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], strict=True))
    names = ("modes", "featureids", "values", "truenodeids", "falsenodeids")
    columns = [nodes[f"nodes_{name}"] for name in names]
    missing = nodes.get("nodes_missing_value_tracks_true") or [0] * len(keys)
    table = dict(zip(keys, zip(*columns, missing, strict=True), strict=True))
    children = {(tree, child) for tree, node in keys if table[tree, node][0] != "LEAF" for child in table[tree, node][3:5]}
    votes_of = {}
    columns = [given[f"target_{name}"] for name in ("treeids", "nodeids", "ids", "weights")]
    for tree, node, target, weight in zip(*columns, strict=True):
        votes_of.setdefault((tree, node), []).append((target, weight))
    result = np.zeros((len(x), TARGETS))
    for at, row in enumerate(x):
        for tree, node in (key for key in keys if key not in children):
            while table[tree, node][0] != "LEAF":
                mode, feature, split, true_id, false_id, nan_is_true = table[tree, node]
                value = np.float32(row[feature])
                holds = nan_is_true if np.isnan(value) else COMPARISONS[mode](value, np.float32(split))
                node = true_id if holds or (np.isnan(value) and mode == "BRANCH_NEQ") else false_id  # noqa: PLW2901
            for target, weight in votes_of.get((tree, node), ()):
                result[at, target] += np.float32(weight)
    return result


def reordered(columns, order):
    return {name: [values[index] for index in order] for name, values in columns.items()}


def as_made(nodes, given, _rng):
    return nodes, given


def shuffled(nodes, given, rng):
    count, number = len(nodes["nodes_modes"]), len(given["target_ids"])
    return reordered(nodes, rng.permutation(count)), reordered(given, rng.permutation(number))


def trees_in_turns(nodes, given, _rng):
    order = np.argsort(nodes["nodes_nodeids"], kind="stable")
    return reordered(nodes, order), given


def backwards(nodes, given, _rng):
    return reordered(nodes, range(len(nodes["nodes_modes"]))[::-1]), given


def in_each_tree_shuffled(nodes, given, rng):
    count = len(nodes["nodes_modes"])
    order = np.lexsort((rng.permutation(count), nodes["nodes_treeids"]))
    return reordered(nodes, order), given


def renumbered(new_tree, new_node):
    def change(nodes, given, _rng):
        nodes, given = dict(nodes), dict(given)
        for columns, prefix in ((nodes, "nodes"), (given, "target")):
            columns[f"{prefix}_treeids"] = [new_tree(tree) for tree in columns[f"{prefix}_treeids"]]
            columns[f"{prefix}_nodeids"] = [new_node(node) for node in columns[f"{prefix}_nodeids"]]
        for name in ("nodes_truenodeids", "nodes_falsenodeids"):
            is_leaf = (mode == "LEAF" for mode in nodes["nodes_modes"])
            # What a leaf names as its children is nothing.
            nodes[name] = [0 if leaf else new_node(node) for leaf, node in zip(is_leaf, nodes[name], strict=True)]
        return nodes, given

    return change


CHANGES = {
    "as made": as_made,
    "shuffled": shuffled,
    "trees in turns": trees_in_turns,
    "backwards": backwards,
    "each tree shuffled": in_each_tree_shuffled,
    "ids in steps": renumbered(lambda tree: tree, lambda node: 3 * node + 1),
    "few of many ids": renumbered(lambda tree: 5 - 7 * tree, lambda node: 2**40 + 2**30 * node),
    "ids near the largest": renumbered(lambda tree: -tree, lambda node: 2**63 - 1 - node),
}
AS_ONNX_RUNTIME = ("as made", "ids in steps")
"""ONNX Runtime takes the first node of each tree for its root."""


def a_large_ensemble(modes, missing):
    nodes, leaves = random_trees(11, trees=150, modes=modes, missing=missing)
    assert len(nodes["nodes_modes"]) > 4200
    return nodes, votes(leaves, "target", TARGETS, 11)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("modes", "missing"), [(["BRANCH_LEQ"], False), (["BRANCH_LEQ"], True), (MODES, False), (MODES, True)])
def test_orders_and_ids(change, modes, missing):
    nodes, given = CHANGES[change](*a_large_ensemble(modes, missing), np.random.default_rng(12))
    x = rows(11, count=9, nan=missing)
    attributes = {**nodes, **given, "n_targets": TARGETS}
    made = {"domain": DOMAIN, "opset": 3, "attributes": attributes, "output_types": [FLOAT]}
    model, feeds = make_model("TreeEnsembleRegressor", [x], 1, **made)
    np.testing.assert_allclose(run_sdk(model, feeds)[0], walked(x, nodes, given), rtol=1e-4, atol=1e-4)
    if change in AS_ONNX_RUNTIME:
        check("TreeEnsembleRegressor", x, **attributes)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("nodes_modes", "TWIG", "TWIG"),
        ("nodes_nodeids", -3, "must not be negative"),
        ("nodes_nodeids", 0, "given twice"),
        ("nodes_treeids", 77_777, "no such node|no root|circle"),
        ("nodes_truenodeids", 2**62, r"nodes_truenodeids\[\d+\] is 4611686018427387904"),
        ("nodes_falsenodeids", -1, r"nodes_falsenodeids\[\d+\] is -1"),
        ("nodes_truenodeids", 0, "circle"),
        ("nodes_featureids", -9, "feature -9"),
        ("target_nodeids", 5_000, r"target_nodeids\[\d+\] is 5000"),
        ("target_treeids", -1, r"target_nodeids\[\d+\] is"),
        ("target_ids", 3, r"allowed is \[0, 3\)"),
    ],
)
@pytest.mark.parametrize("change", ["as made", "shuffled"])
def test_what_is_no_tree_is_refused_among_many(name, value, message, change):
    nodes, given = CHANGES[change](*a_large_ensemble(["BRANCH_LEQ"], missing=False), np.random.default_rng(13))
    attributes = {**nodes, **given, "n_targets": TARGETS}
    place = 3000 if name.startswith("nodes") else 1000
    while name.startswith("nodes") and (nodes["nodes_modes"][place] == "LEAF" or nodes["nodes_nodeids"][place] == 0):
        place += 1
    changed = list(attributes[name])
    changed[place] = value
    refused(InvalidGraph, message, "TreeEnsembleRegressor", {**attributes, name: changed})


def test_a_column_that_is_too_long_is_refused():
    nodes, given = a_large_ensemble(["BRANCH_LEQ"], missing=False)
    for name in ("nodes_modes", "nodes_values", "nodes_treeids", "target_weights"):
        attributes = {**nodes, **given, "n_targets": TARGETS}
        attributes[name] = [*attributes[name], attributes[name][-1]]
        refused(InvalidGraph, "must have", "TreeEnsembleRegressor", attributes)


def test_circles_far_down():
    """A chain of nodes whose last one leads back into it, numbered so that parents come behind their children."""
    count = 5000
    nodes = {
        "nodes_treeids": [0] * (count + 1),
        "nodes_nodeids": list(range(count + 1)),
        "nodes_featureids": [0] * (count + 1),
        "nodes_values": [0.5] * (count + 1),
        "nodes_modes": ["LEAF"] + ["BRANCH_LEQ"] * count,
        "nodes_truenodeids": [0, 0, *range(1, count)],
        "nodes_falsenodeids": [0] * (count + 1),
        "target_treeids": [0],
        "target_nodeids": [0],
        "target_ids": [0],
        "target_weights": [2.5],
        "n_targets": 1,
    }
    (y,) = check("TreeEnsembleRegressor", np.zeros((2, 1), np.float32), **nodes)
    assert y.tolist() == [[2.5], [2.5]]
    nodes["nodes_truenodeids"][1] = 2000
    refused(InvalidGraph, "circle", "TreeEnsembleRegressor", nodes, np.zeros((2, 1), np.float32))


def test_leaves_that_trees_share():
    """Branches may meet again."""
    nodes = {
        "nodes_treeids": [0] * 5,
        "nodes_nodeids": [4, 3, 2, 1, 0],
        "nodes_featureids": [0, 0, 0, 1, 0],
        "nodes_values": [0.0, 0.0, 0.25, 0.5, 0.75],
        "nodes_modes": ["LEAF", "LEAF", "BRANCH_LT", "BRANCH_GT", "BRANCH_LEQ"],
        "nodes_truenodeids": [0, 0, 3, 2, 1],
        "nodes_falsenodeids": [0, 0, 4, 4, 2],
        "target_treeids": [0, 0],
        "target_nodeids": [3, 4],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
    }
    x = np.random.default_rng(3).random((40, 2)).astype(np.float32)
    given = {"domain": DOMAIN, "opset": 3, "attributes": nodes, "output_types": [FLOAT]}
    made, feeds = make_model("TreeEnsembleRegressor", [x], 1, **given)
    first, second = x.T
    to_second = np.where(first <= 0.75, second > 0.5, True)
    expected = np.where(to_second & (first < 0.25), 1.0, 2.0)
    np.testing.assert_array_equal(run_sdk(made, feeds)[0][:, 0], expected)


def test_ort_format_has_the_same_attributes(tmp_path):
    nodes, given = a_large_ensemble(MODES, missing=True)
    x = rows(11, count=9)
    attributes = {**nodes, **given, "n_targets": TARGETS}
    model, feeds = make_model(
        "TreeEnsembleRegressor", [x], 1, domain=DOMAIN, opset=3, attributes=attributes, output_types=[FLOAT]
    )
    target = convert(model.SerializeToString(), tmp_path / "model.ort")
    (node,) = ort_sdk.loader.load_model(target).graph.nodes
    for name, values in nodes.items():
        found = node.attributes[name]
        assert isinstance(found, list)
        assert found == (np.float32(values).tolist() if name == "nodes_values" else values)
    results = ort_sdk.InferenceSession(str(target), providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(results[0], run_reference(model, feeds)[0], rtol=1e-5, atol=1e-5)


def test_what_sessions_write_has_the_same_attributes(tmp_path):
    nodes, given = a_large_ensemble(MODES, missing=True)
    attributes = {**nodes, **given, "n_targets": TARGETS}
    given = {"domain": DOMAIN, "opset": 3, "attributes": attributes, "output_types": [FLOAT]}
    model, _ = make_model("TreeEnsembleRegressor", [rows(1)], 1, **given)
    for name in ("model.onnx", "model.ort"):
        options = ort_sdk.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / name)
        ort_sdk.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        (written,) = ort_sdk.loader.load_model(tmp_path / name).graph.nodes
        (read,) = ort_sdk.loader.load_model(model.SerializeToString()).graph.nodes
        for attribute in nodes:
            assert written.attributes[attribute] == read.attributes[attribute]
    assert onnx.load(tmp_path / "model.onnx").graph.node[0].op_type == "TreeEnsembleRegressor"


@pytest.mark.parametrize("modes", [["BRANCH_LEQ"], MODES])
def test_sessions_make_no_objects_of_nodes(monkeypatch, tmp_path, modes):
    nodes, given = a_large_ensemble(modes, missing=True)
    x = rows(11, count=9, nan=True)
    made = {"domain": DOMAIN, "opset": 3, "attributes": {**nodes, **given, "n_targets": TARGETS}, "output_types": [FLOAT]}
    model, feeds = make_model("TreeEnsembleRegressor", [x], 1, **made)
    converted = convert(model.SerializeToString(), tmp_path / "model.ort")

    def refuse(self):
        raise AssertionError(f"all {len(self)} elements of an attribute are asked for")

    monkeypatch.setattr(LongList, "read", refuse)
    for source in (model.SerializeToString(), converted):
        results = ort_sdk.InferenceSession(source, providers=["CPUExecutionProvider"]).run(None, feeds)
        np.testing.assert_allclose(results[0], walked(x, nodes, given), rtol=1e-4, atol=1e-4)


def test_double_precision_tensors_of_many_nodes():
    nodes, given = a_large_ensemble(["BRANCH_LT"], missing=False)
    values = np.float64(nodes.pop("nodes_values")) + 1e-12
    nodes["nodes_values_as_tensor"] = numpy_helper.from_array(values)
    given["target_weights_as_tensor"] = numpy_helper.from_array(np.float64(given.pop("target_weights")))
    check("TreeEnsembleRegressor", rows(4, dtype=np.float64), n_targets=TARGETS, **nodes, **given)


def test_labels_of_many_nodes():
    nodes, leaves = random_trees(14, trees=150)
    given = votes(leaves, "class", 3, 14) | {"classlabels_strings": ["a", "b", "c"]}
    attributes = {"domain": DOMAIN, "opset": 3, "attributes": {**nodes, **given}, "output_types": [INT64, FLOAT]}
    assert make_model("TreeEnsembleClassifier", [rows(14)], 2, **attributes)
    check("TreeEnsembleClassifier", rows(14), 2, **nodes, **given)
