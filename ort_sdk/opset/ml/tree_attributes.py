"""Reading the trees and votes out of the attributes of the tree ensemble operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ort_sdk.api import HostArray, InvalidGraph, KernelInfo, TensorElementType
from ort_sdk.api.data_classes import dataclass
from ort_sdk.api.long_lists import CodedList, array_of

from .node_index import NodeIndex, node_index
from .tree_nodes import LEAF, MEMBER, MODES, TreeNodes, tree_nodes

__all__ = ["Trees", "read_trees", "read_trees_by_id"]


@dataclass(frozen=True, slots=True)
class Trees:
    """The trees of an ensemble and what their leaves vote."""

    nodes: TreeNodes
    vote_nodes: HostArray
    """Leaf of each vote."""
    vote_targets: HostArray
    """Target (or class) it is for."""
    vote_weights: HostArray
    """Its weight, float64."""


def read_trees(info: KernelInfo) -> Trees:
    """Trees of TreeEnsemble: leaves are apart from the inner nodes, and nodes name each other by position.

    Raises:
        InvalidGraph: the attributes do not describe trees.
    """
    modes = _array(info, "nodes_modes").astype(np.intp, copy=False)
    names = ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs")
    features, true_ids, false_ids, true_leafs, false_leafs = (_array(info, name).astype(np.intp, copy=False) for name in names)
    splits = _splits(info, _array(info, "nodes_splits"))
    weights, targets = _array(info, "leaf_weights").astype(np.float64), _array(info, "leaf_targetids").astype(np.intp)
    count, leaves = modes.size, weights.size
    _check_lengths(
        info,
        count,
        {**dict(zip(names, (features, true_ids, false_ids, true_leafs, false_leafs), strict=True)), "nodes_splits": splits},
    )
    _check_lengths(info, leaves, {"leaf_targetids": targets})
    if count and (modes.min() < 0 or modes.max() > MEMBER):
        raise InvalidGraph(f"{info.describe()}: nodes_modes must be in [0, {MEMBER}]; found {sorted(set(modes.tolist()))}")
    for name, ids, is_leaf in (("nodes_truenodeids", true_ids, true_leafs), ("nodes_falsenodeids", false_ids, false_leafs)):
        limit = np.where(is_leaf != 0, leaves, count)
        _refuse(info, (ids < 0) | (ids >= limit), name, ids, "it names no node or leaf")
    at_leaves = np.arange(leaves, dtype=np.intp)
    nodes = _checked(
        info,
        np.concatenate([features, np.zeros(leaves, dtype=np.intp)]),
        np.concatenate([splits, np.zeros(leaves, dtype=splits.dtype)]),
        np.concatenate([modes, np.full(leaves, LEAF)]),
        tuple(
            np.concatenate([ids + np.where(is_leaf != 0, count, 0), count + at_leaves])
            for ids, is_leaf in ((true_ids, true_leafs), (false_ids, false_leafs))
        ),
        _nan_is_true(info, count, leaves),
        _array(info, "tree_roots").astype(np.intp),
        _members(info, int((modes == MEMBER).sum())),
    )
    return Trees(nodes, count + at_leaves, targets, weights)


def read_trees_by_id(info: KernelInfo, votes: str) -> Trees:
    """Trees of TreeEnsembleClassifier and TreeEnsembleRegressor: nodes name each other by tree and node id.

    Args:
        info: the node.
        votes: prefix of the votes' attributes, ``class`` or ``target``.

    Raises:
        InvalidGraph: the attributes do not describe trees.
    """
    modes = _mode_numbers(info, info.attribute("nodes_modes"))
    names = ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids")
    columns = {name: _array(info, name).astype(np.int64, copy=False) for name in names}
    splits = _splits(info, _array(info, "nodes_values", as_tensor=True))
    _check_lengths(info, modes.size, {**columns, "nodes_values": splits})
    tree_ids, node_ids, features, true_ids, false_ids = columns.values()
    index = node_index(info, tree_ids, node_ids)
    inner = modes != LEAF
    children = index.find(tree_ids, true_ids, false_ids)
    for name, ids, child in zip(names[3:], (true_ids, false_ids), children, strict=True):
        _refuse(info, inner & (child < 0), name, ids, "its tree has no such node")
    at = np.arange(modes.size)
    true_child, false_child = (np.where(inner, child, at) for child in children)
    roots = _roots(info, tree_ids, index.tree_count, (true_child[inner], false_child[inner]))
    nodes = _checked(info, features, splits, modes, (true_child, false_child), _nan_is_true(info, modes.size, 0), roots)
    return _with_votes(info, votes, nodes, index)


def _with_votes(info: KernelInfo, votes: str, nodes: TreeNodes, index: NodeIndex) -> Trees:
    names = tuple(f"{votes}_{name}" for name in ("treeids", "nodeids", "ids"))
    tree_ids, node_ids, targets = (_array(info, name).astype(np.int64, copy=False) for name in names)
    weights = _array(info, f"{votes}_weights", as_tensor=True).astype(np.float64)
    _check_lengths(info, weights.size, dict(zip(names, (tree_ids, node_ids, targets), strict=True)))
    (voters,) = index.find(tree_ids, node_ids)
    _refuse(info, voters < 0, names[1], node_ids, "its tree has no such node")
    # ONNX Runtime ignores votes of inner nodes, which some converters write.
    at_leaf = nodes.is_leaf[voters]
    if not at_leaf.all():
        voters, targets, weights = voters[at_leaf], targets[at_leaf], weights[at_leaf]
    return Trees(nodes, voters, targets.astype(np.intp, copy=False), weights)


def _checked(info: KernelInfo, *parts: Any) -> TreeNodes:
    try:
        return tree_nodes(*parts)
    except InvalidGraph as error:
        raise InvalidGraph(f"{info.describe()}: {error.text}") from error


def _array(info: KernelInfo, name: str, *, as_tensor: bool = False) -> HostArray:
    """An attribute that is a list or a tensor, as a vector; ``as_tensor``: it may come as ``name_as_tensor`` too."""
    value = info.attribute(f"{name}_as_tensor", None) if as_tensor else None
    if value is None:
        value = info.attribute(name)
    if isinstance(value, list | tuple):
        return array_of(value)
    vector: HostArray = value.numpy().reshape(-1)
    return vector


def _splits(info: KernelInfo, values: HostArray) -> HostArray:
    """Splits in the type rows are compared in: float64 if the rows are wider than float32, else their own."""
    is_narrow = info.input_element_type(0) in (TensorElementType.FLOAT, TensorElementType.FLOAT16)
    return values.astype(np.float32 if is_narrow and values.dtype != np.float64 else np.float64, copy=False)


def _nan_is_true(info: KernelInfo, count: int, leaves: int) -> HostArray | None:
    if not info.attribute("nodes_missing_value_tracks_true", None):
        return None
    values = _array(info, "nodes_missing_value_tracks_true")
    _check_lengths(info, count, {"nodes_missing_value_tracks_true": values})
    return np.concatenate([values.astype(np.bool_), np.zeros(leaves, dtype=np.bool_)])


def _members(info: KernelInfo, nodes: int) -> list[HostArray]:
    """Values of each membership test; NaNs part them in the attribute.

    Raises:
        InvalidGraph: there are not as many sets as tests, or an empty one.
    """
    if not nodes:
        return []
    values = _array(info, "membership_values").astype(np.float64)
    ends = np.flatnonzero(np.isnan(values))
    sets = [part[~np.isnan(part)] for part in np.split(values, ends)]
    if not sets[-1].size:
        sets.pop()
    if len(sets) != nodes or not all(part.size for part in sets):
        raise InvalidGraph(
            f"{info.describe()}: membership_values holds {len(sets)} sets; there must be one, not empty, for each of {nodes} "
            "BRANCH_MEMBER nodes, each ended by NaN"
        )
    return sets


def _mode_numbers(info: KernelInfo, names: Sequence[str]) -> HostArray:
    numbers = {**{name: number for number, name in enumerate(MODES[:MEMBER])}, "LEAF": LEAF}
    different = names.values if isinstance(names, CodedList) else names
    unknown = sorted({*different} - numbers.keys())
    if unknown:
        raise InvalidGraph(f"{info.describe()}: nodes_modes {unknown} are unknown; allowed are {', '.join(numbers)}")
    found = np.fromiter(map(numbers.__getitem__, different), np.uint8, len(different))
    return found[names.codes] if isinstance(names, CodedList) else found


def _roots(info: KernelInfo, tree_ids: HostArray, tree_count: int, children: tuple[HostArray, ...]) -> HostArray:
    """First node of each tree that is no node's child."""
    is_orphan = np.ones(tree_ids.size, dtype=np.bool_)
    for child in children:
        is_orphan[child] = False
    orphans = np.flatnonzero(is_orphan)
    trees, first = np.unique(tree_ids[orphans], return_index=True)
    if trees.size != tree_count:
        rootless = np.setdiff1d(tree_ids, trees)
        raise InvalidGraph(f"{info.describe()}: the nodes of tree {rootless[0]} go round in a circle; it has no root")
    return orphans[first]


def _check_lengths(info: KernelInfo, count: int, columns: dict[str, HostArray]) -> None:
    wrong = {name: column.size for name, column in columns.items() if column.size != count}
    if wrong:
        raise InvalidGraph(f"{info.describe()}: {wrong} entries are given; each of these attributes must have {count}")


def _refuse(info: KernelInfo, is_wrong: HostArray, name: str, values: HostArray, reason: str) -> None:
    if is_wrong.any():
        position = int(np.flatnonzero(is_wrong)[0])
        raise InvalidGraph(f"{info.describe()}: {name}[{position}] is {values[position]}: {reason}")
