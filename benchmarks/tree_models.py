"""Ensembles of decision trees as converters of boosted trees write them. They need the onnx package."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

FEATURES, CLASSES = 40, 8
LEAVES = 200
SHAPES = 16
"""Different forms of trees, which follow one another."""


def classifier(node_count: int, seed: int = 0) -> onnx.ModelProto:
    """A classifier of unbalanced trees of 200 leaves, with about so many nodes.

    As LightGBM's converter has it, children get their numbers before nodes further down do, and nodes come depth first.
    """
    rng = np.random.default_rng(seed)
    leaves = min(LEAVES, node_count // 2 + 1)
    trees = max(1, node_count // (2 * leaves - 1))
    forms = [_form(rng, leaves) for _ in range(min(SHAPES, trees))]
    ids, true_ids, false_ids = (
        np.concatenate([forms[tree % len(forms)][column] for tree in range(trees)]) for column in range(3)
    )
    tree_ids, is_leaf = np.repeat(np.arange(trees), 2 * leaves - 1), true_ids == 0
    attributes = {
        "nodes_treeids": tree_ids,
        "nodes_nodeids": ids,
        "nodes_featureids": np.where(is_leaf, 0, rng.integers(0, FEATURES, ids.size)),
        "nodes_modes": np.where(is_leaf, "LEAF", "BRANCH_LEQ"),
        "nodes_values": np.where(is_leaf, 0, rng.random(ids.size)).astype(np.float32),
        "nodes_truenodeids": true_ids,
        "nodes_falsenodeids": false_ids,
        "nodes_missing_value_tracks_true": np.zeros(ids.size, np.int64),
        "nodes_hitrates": np.ones(ids.size, np.float32),
        "class_treeids": tree_ids[is_leaf],
        "class_nodeids": ids[is_leaf],
        "class_ids": tree_ids[is_leaf] % CLASSES,
        "class_weights": (rng.standard_normal(is_leaf.sum()) / 64).astype(np.float32),
        "classlabels_int64s": np.arange(CLASSES),
        "post_transform": "SOFTMAX",
    }
    node = onnx.NodeProto(op_type="TreeEnsembleClassifier", domain="ai.onnx.ml", input=["x"], output=["label", "scores"])
    node.attribute.extend(_attribute(name, value) for name, value in attributes.items())
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, FEATURES])
    label = helper.make_tensor_value_info("label", TensorProto.INT64, [1])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, CLASSES])
    imports = [helper.make_opsetid("", 15), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(helper.make_graph([node], "trees", [x], [label, scores]), opset_imports=imports, ir_version=8)


def _form(rng: np.random.Generator, leaves: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids of a tree's nodes, and of their children, depth first; children of a leaf are 0."""
    ids, true_ids, false_ids = [], [], []
    waiting, count = [(0, leaves)], 1
    while waiting:
        node, below = waiting.pop()
        ids.append(node)
        if below == 1:
            true_ids.append(0)
            false_ids.append(0)
            continue
        left = int(rng.integers(1, below))
        true_ids.append(count)
        false_ids.append(count + 1)
        waiting += [(count + 1, below - left), (count, left)]
        count += 2
    return np.array(ids), np.array(true_ids), np.array(false_ids)


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    """As ``helper.make_attribute``, which looks at each element several times."""
    if isinstance(value, str):
        return helper.make_attribute(name, value)
    kind = {"f": "FLOATS", "i": "INTS", "U": "STRINGS"}[value.dtype.kind]
    found = onnx.AttributeProto(name=name, type=onnx.AttributeProto.AttributeType.Value(kind))
    getattr(found, kind.lower()).extend(np.char.encode(value).tolist() if kind == "STRINGS" else value.tolist())
    return found
