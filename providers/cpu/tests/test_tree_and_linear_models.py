"""Tree ensembles and linear models by compiled tasks: as the shared set computes them, with any attributes."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from ort_sdk_cpu.kernel.layouts.any_layout import FixedSlot
from ort_sdk_cpu.platform import libraries

import ort_sdk

DOMAIN = "ai.onnx.ml"
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]

pytestmark = pytest.mark.skipif(not libraries.compiled_kernels().is_usable, reason="classifiers are compiled")


def _random_trees(trees, modes=("BRANCH_LEQ",), features=5, seed=0, *, missing=False):
    """Attributes of unbalanced trees, and their leaves as (tree, node)."""
    rng = np.random.default_rng(seed)
    columns = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    found, leaves = {f"nodes_{name}": [] for name in columns}, []
    for tree in range(trees):
        waiting, count = [(0, 0)], 1
        for node, level in waiting:
            if level == 7 or (level and rng.random() < 0.3):
                row = (tree, node, 0, 0.0, "LEAF", 0, 0)
                leaves.append((tree, node))
            else:
                split = float(rng.integers(-3, 4))
                row = (tree, node, int(rng.integers(features)), split, str(rng.choice(modes)), count, count + 1)
                waiting += [(count, level + 1), (count + 1, level + 1)]
                count += 2
            for name, value in zip(columns, row, strict=True):
                found[f"nodes_{name}"].append(value)
    if missing:
        found["nodes_missing_value_tracks_true"] = rng.integers(0, 2, len(found["nodes_treeids"])).tolist()
    return found, leaves


def _votes(leaves, prefix, targets, low=-1.0, seed=0):
    """Several votes for some leaves, none for others."""
    rng = np.random.default_rng(seed)
    chosen = [leaves[place] for place in rng.integers(0, len(leaves), 2 * len(leaves))]
    return {
        f"{prefix}_treeids": [tree for tree, _ in chosen],
        f"{prefix}_nodeids": [node for _, node in chosen],
        f"{prefix}_ids": [targets[place] for place in rng.integers(0, len(targets), len(chosen))],
        f"{prefix}_weights": rng.uniform(low, 1, len(chosen)).astype(np.float32).tolist(),
    }


def _rows(count, features=5, *, missing=False):
    rng = np.random.default_rng(count)
    x = rng.integers(-3, 4, (count, features)).astype(np.float32)
    if missing:
        x[rng.random(x.shape) < 0.2] = np.nan
        x[0] = [np.inf, -np.inf, np.nan, -0.0, 3.0]
    return x


@pytest.mark.parametrize("modes", [[mode] for mode in MODES] + [MODES])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("trees", [1, 3, 4, 9])
def test_modes(check, modes, missing, trees):
    nodes, leaves = _random_trees(trees, modes, missing=missing)
    given = _votes(leaves, "target", [0, 1, 2])
    x = _rows(40, missing=missing)
    check("TreeEnsembleRegressor", x, domain=DOMAIN, version=3, tolerance=1e-6, n_targets=3, **nodes, **given)


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("targets", [1, 2, 19])
def test_regressors(check, aggregate, transform, targets):
    nodes, leaves = _random_trees(6)
    given = _votes(leaves, "target", range(targets)) | {"aggregate_function": aggregate, "post_transform": transform}
    given |= {"n_targets": targets, "base_values": np.linspace(0.2, 0.6, targets).tolist()}
    check("TreeEnsembleRegressor", _rows(17), domain=DOMAIN, version=3, tolerance=2e-6, **nodes, **given)


@pytest.mark.parametrize("modes", [["BRANCH_LEQ"], ["BRANCH_LT", "BRANCH_GTE"], MODES])
@pytest.mark.parametrize("votes", [[0], [1], [0, 2], [2, 1, 0]])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(("trees", "rows"), [(1, 70), (5, 1), (21, 1), (21, 3), (9, 40)])
def test_as_many_votes_in_each_leaf(check, modes, votes, aggregate, trees, rows):
    nodes, leaves = _random_trees(trees, modes, missing=rows != 3)
    rng, count = np.random.default_rng(trees), len(leaves) * len(votes)
    given = {
        "target_treeids": [tree for tree, _ in leaves for _ in votes],
        "target_nodeids": [node for _, node in leaves for _ in votes],
        "target_ids": votes * len(leaves),
        "target_weights": rng.uniform(-1, 1, count).astype(np.float32).tolist(),
        "aggregate_function": aggregate,
        "n_targets": max(votes) + 1,
    }
    for x in (_rows(rows), _rows(rows, missing=True)):
        check("TreeEnsembleRegressor", x, domain=DOMAIN, version=3, tolerance=1e-6, **nodes, **given)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("voted", [[0], [1], [0, 1]])
@pytest.mark.parametrize("low", [-1.0, 0.0])
def test_two_classes(check, transform, voted, low):
    nodes, leaves = _random_trees(5)
    given = _votes(leaves, "class", voted, low) | {"classlabels_int64s": [-3, 40], "post_transform": transform}
    check("TreeEnsembleClassifier", _rows(33), domain=DOMAIN, version=3, tolerance=2e-6, wanted=(0, 1), **nodes, **given)


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("rows", [1, 300])
def test_outputs_that_are_asked_for(check, wanted, rows):
    nodes, leaves = _random_trees(30)
    given = _votes(leaves, "class", range(18)) | {"classlabels_int64s": list(range(100, 118)), "post_transform": "SOFTMAX"}
    check("TreeEnsembleClassifier", _rows(rows), domain=DOMAIN, version=3, tolerance=2e-6, wanted=wanted, **nodes, **given)


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_and_single_rows(check, rows):
    nodes, leaves = _random_trees(2)
    check(
        "TreeEnsembleRegressor",
        _rows(rows or 3)[:rows],
        domain=DOMAIN,
        version=3,
        n_targets=1,
        **nodes,
        **_votes(leaves, "target", [0]),
    )


def test_membership_tests(check, unaligned_constant):
    def tensor(values, dtype):
        return unaligned_constant(np.asarray(values, dtype))

    attributes = {
        "nodes_modes": tensor([6, 0], np.uint8),
        "nodes_featureids": [0, 1],
        "nodes_truenodeids": [1, 0],
        "nodes_falsenodeids": [2, 1],
        "nodes_trueleafs": [0, 1],
        "nodes_falseleafs": [1, 1],
        "nodes_splits": tensor([0.0, 1.5], np.float32),
        "leaf_weights": tensor([1.0, 2.0, 4.0], np.float32),
        "leaf_targetids": [0, 0, 0],
        "tree_roots": [0],
        "membership_values": tensor([2.0, 5.0, 7.0, np.nan], np.float32),
        "n_targets": 1,
    }
    x = np.array([[2, 1], [5, 2], [6, 1], [7, 1], [np.nan, 1]], np.float32)
    check("TreeEnsemble", x, domain=DOMAIN, **attributes)


def test_the_task_is_used(make_kernel):
    nodes, leaves = _random_trees(8)
    given = _votes(leaves, "target", [0]) | {"n_targets": 1}
    x, out = _rows(4), np.empty((4, 1), np.float32)
    kernel = make_kernel("TreeEnsembleRegressor", (x,), {**nodes, **given}, DOMAIN, 3, (), ())
    call = kernel.bind([FixedSlot(x)], [FixedSlot(out)])
    assert len(call.native.rows) == 1
    call()
    np.testing.assert_allclose(out, kernel.compute(x), rtol=1e-6)


def _wide_rows(dtype):
    """Rows that lie at splits, and of float64 between those and the next numbers of float32."""
    x = _rows(40, missing=dtype is np.float64).astype(dtype)
    if dtype is np.float64:
        x[2::3] += 1e-12
        x[3::3] -= 1e-12
        x[1] = [1e300, -1e300, 1e-60, -1e-60, 0.0]
    return x


@pytest.mark.parametrize(
    ("modes", "dtype"),
    # onnxruntime compares float64 with splits of float32 that it moved where BRANCH_LT is mixed with others.
    [*(([mode], dtype) for mode in MODES[:4] for dtype in (np.float64, np.int64)), (MODES[:4], np.int64)],
)
def test_rows_of_wider_types(modes, dtype):
    nodes, leaves = _random_trees(5, modes, missing=True)
    given = _votes(leaves, "class", range(3)) | {"classlabels_int64s": [4, 5, 6]}
    value, x = helper.make_tensor_value_info, _wide_rows(dtype)
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "scores"], domain=DOMAIN, **nodes, **given)
    outputs = [value("label", TensorProto.INT64, None), value("scores", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", [value("x", helper.np_dtype_to_tensor_dtype(x.dtype), [None, 5])], outputs)
    opsets = [helper.make_opsetid(DOMAIN, 3), helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    session = ort_sdk.InferenceSession(model)
    for _ in range(4):
        labels, scores = session.run(None, {"x": x})
        np.testing.assert_array_equal(labels, expected[0])
        np.testing.assert_allclose(scores, expected[1], rtol=1e-5, atol=1e-6)


COMPARISONS = dict(zip(MODES, ("__le__", "__lt__", "__ge__", "__gt__", "__eq__", "__ne__"), strict=True))


def _walked(row, nodes, splits, votes):
    """Sums of the three classes for a row: onnxruntime moves some splits of float64 by steps of float32."""
    node_at = {place: number for number, place in enumerate(zip(nodes["nodes_treeids"], nodes["nodes_nodeids"], strict=True))}
    sums = np.zeros(3)
    for tree in sorted(set(nodes["nodes_treeids"])):
        own = 0
        while (mode := nodes["nodes_modes"][number := node_at[tree, own]]) != "LEAF":
            feature = float(row[nodes["nodes_featureids"][number]])
            holds = getattr(feature, COMPARISONS[mode])(splits[number])
            holds |= np.isnan(feature) and bool(nodes["nodes_missing_value_tracks_true"][number])
            own = nodes["nodes_truenodeids" if holds else "nodes_falsenodeids"][number]
        for place, (voter, leaf) in enumerate(zip(votes["class_treeids"], votes["class_nodeids"], strict=True)):
            if (voter, leaf) == (tree, own):
                sums[votes["class_ids"][place]] += votes["class_weights"][place]
    return sums


@pytest.mark.parametrize("modes", [*([mode] for mode in MODES), MODES])
@pytest.mark.parametrize(("rows", "has_names"), [(1, False), (31, False), (31, True)])
def test_splits_of_float64(modes, rows, has_names):
    nodes, leaves = _random_trees(5, modes, missing=True)
    splits, votes = np.array(nodes.pop("nodes_values")) / 3, _votes(leaves, "class", range(3))
    x = _rows(rows, missing=True).astype(np.float64) / 3
    x[1::3], x[2::3] = np.nextafter(x[1::3], np.inf), np.nextafter(x[2::3], -np.inf)
    sums = np.array([_walked(row, nodes, splits, votes) for row in x])
    names = np.array(["a", "b", "c"], object) if has_names else np.array([4, 5, 6])
    given = {**nodes, **votes, "nodes_values_as_tensor": numpy_helper.from_array(splits)}
    given["class_weights_as_tensor"] = numpy_helper.from_array(np.array(given.pop("class_weights")))
    given["classlabels_strings" if has_names else "classlabels_int64s"] = names.tolist()
    value = helper.make_tensor_value_info
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "scores"], domain=DOMAIN, **given)
    label = TensorProto.STRING if has_names else TensorProto.INT64
    outputs = [value("label", label, None), value("scores", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", [value("x", TensorProto.DOUBLE, [None, 5])], outputs)
    opsets = [helper.make_opsetid(DOMAIN, 3), helper.make_opsetid("", 17)]
    session = ort_sdk.InferenceSession(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    for _ in range(3):
        labels, scores = session.run(None, {"x": x})
        np.testing.assert_array_equal(labels, names[sums.argmax(axis=1)])
        np.testing.assert_allclose(scores, sums, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3, 20])
@pytest.mark.parametrize("features", [1, 16, 37])
@pytest.mark.parametrize("wanted", [(0,), (0, 1)])
def test_linear_classifiers(check, transform, classes, features, wanted):
    rng, scores = np.random.default_rng(classes), 1 if classes == 2 else classes
    attributes = {
        "coefficients": rng.standard_normal(scores * features).tolist(),
        "intercepts": rng.standard_normal(scores).tolist(),
        "classlabels_ints": list(range(7, 7 + classes)),
        "post_transform": transform,
    }
    x = rng.standard_normal((45, features)).astype(np.float32)
    check("LinearClassifier", x, domain=DOMAIN, tolerance=5e-6, wanted=wanted, **attributes)


def _named(op_type):
    if op_type == "LinearClassifier":
        attributes = {"coefficients": [1.0, -1.0, 0.5, 2.0, -0.5] * 3, "intercepts": [0.1, 0.2, 0.3]}
    else:
        nodes, leaves = _random_trees(9)
        attributes = {**nodes, **_votes(leaves, "class", range(3))}
    return attributes | {"classlabels_strings": ["a", "bc", "d"], "post_transform": "SOFTMAX"}


@pytest.mark.parametrize("op_type", ["LinearClassifier", "TreeEnsembleClassifier"])
@pytest.mark.parametrize("rows", [0, 1, 70])
def test_labels_that_are_strings(op_type, rows):
    value = helper.make_tensor_value_info
    node = helper.make_node(op_type, ["x"], ["label", "scores"], domain=DOMAIN, **_named(op_type))
    outputs = [value("label", TensorProto.STRING, None), value("scores", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", [value("x", TensorProto.FLOAT, [None, 5])], outputs)
    opsets = [helper.make_opsetid(DOMAIN, 3), helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    x = _rows(rows or 3)[:rows]
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    session = ort_sdk.InferenceSession(model)
    for _ in range(4):
        labels, scores = session.run(None, {"x": x})
        assert labels.tolist() == expected[0].tolist()
        np.testing.assert_allclose(scores, expected[1], rtol=1e-5, atol=1e-6)
