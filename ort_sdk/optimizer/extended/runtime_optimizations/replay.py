"""Fusions that a file in ORT format describes, made (ORT's ``SelectorActionTransformer::ApplySavedRuntimeOptimizations``)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Hashable, Mapping

from ort_sdk.api import Fail
from ort_sdk.graph import Graph, Node, RuntimeOptimization
from ort_sdk.graph.editing import refresh_captures
from ort_sdk.graph.type_strings import op_id
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match, operator_key
from ort_sdk.optimizer.transformer import TransformerContext

from .recordable import ACTIONS, pass_of, recordable_passes

__all__ = ["replay_runtime_optimizations"]

logger = logging.getLogger("ort_sdk.optimizer")


class _Replayer(GraphMatcher):
    """Makes the replacements that the records of one optimizer describe: of their nodes, by what they say is produced."""

    def __init__(self, graph: Graph, context: TransformerContext) -> None:
        super().__init__(graph, context)
        self._present = {id(node) for node in graph.nodes}
        self._members: frozenset[int] = frozenset()
        self._produced: tuple[str, ...] = ()

    def follow(self, fusion: FusionPass, anchor: Node, optimization: RuntimeOptimization) -> bool:
        """Let a pass replace a record's nodes, found from one of them; returns whether they will be replaced."""
        self._members = frozenset(id(node) for node in optimization.nodes)
        self._produced = optimization.produced
        return self._members <= self._present and bool(fusion.fuse(self, anchor))

    def replace(self, match: Match, new: Node, kind: Hashable = None) -> bool:
        """Replace nodes of the record."""
        if any(id(node) not in self._members for node in match.nodes):
            return False
        if self._produced and op_id(new.domain, new.op_type, new.since_version) not in self._produced:
            return False
        return super().replace(match, new, kind)


def replay_runtime_optimizations(graph: Graph, context: TransformerContext, disabled: Collection[str] = ()) -> bool:
    """Make the fusions that are recorded for a graph and its bodies.

    A record that cannot be replayed is kept, and logged: its optimizer or its action is none of ours, its nodes have changed, or
    no provider has a kernel for what it makes.

    Args:
        graph: its nodes are placed.
        context: what passes may use.
        disabled: names of passes to leave out.

    Returns:
        Whether nodes changed.

    Raises:
        Fail: an optimizer has an action that ONNX Runtime does not know, either.
    """
    recorded = [inner for inner in graph.walk() if inner.runtime_optimizations]
    passes = recordable_passes() if recorded else {}
    off = {name for name, each in passes.items() if name in disabled or not each.is_enabled(context)}
    changed = False
    for inner in recorded:
        changed |= _replay(_Replayer(inner, context), passes, off)
    if changed:
        refresh_captures(graph)
    return changed


def _replay(replayer: _Replayer, passes: Mapping[str, FusionPass], off: Collection[str]) -> bool:
    kept = []
    for each in replayer.graph.runtime_optimizations:
        _check_action(each)
        name = pass_of(each.optimizer, each.action)
        if name in off or each.optimizer in off:
            kept.append(each)
            continue
        reason = _reason_against(replayer, passes.get(name), each)
        if reason:
            kept.append(each)
            where = each.target.describe()
            logger.warning("runtime optimization '%s' of %s is not made at %s: %s", each.action, each.optimizer, where, reason)
    replayer.graph.runtime_optimizations = kept
    return replayer.commit()


def _check_action(optimization: RuntimeOptimization) -> None:
    name, action = optimization.optimizer, optimization.action
    if name in ACTIONS and action not in ACTIONS[name]:
        raise Fail(
            f"Missing action {action} for transformer {name}; its actions are {', '.join(sorted(ACTIONS[name]))}. "
            "The model runs without its saved optimizations: leave out session.enable_saved_runtime_optimizations"
        )


def _reason_against(replayer: _Replayer, fusion: FusionPass | None, optimization: RuntimeOptimization) -> str:
    """Why a record is not made; empty if it will be."""
    anchors = () if fusion is None else fusion.anchors
    anchor = next((node for node in (optimization.target, *optimization.nodes) if operator_key(node) in anchors), None)
    if fusion is None or anchor is None:
        return "there is no such optimization here"
    if not replayer.follow(fusion, anchor, optimization):
        return "its nodes are not as it says, or no kernel runs what would come instead"
    return ""
