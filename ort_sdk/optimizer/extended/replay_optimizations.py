"""Fusions that a file in ORT format describes, made (ORT's ``SelectorActionTransformer::ApplySavedRuntimeOptimizations``)."""

from __future__ import annotations

import logging
from collections.abc import Collection

from ort_sdk.api import Fail
from ort_sdk.graph import Graph, Node, RuntimeOptimization
from ort_sdk.graph.editing import refresh_captures
from ort_sdk.graph.type_strings import op_id
from ort_sdk.optimizer.pattern import FusionPass, GraphMatcher, Match
from ort_sdk.optimizer.transformer import TransformerContext

from .recordable import ACTIONS, recordable_passes

__all__ = ["replay_runtime_optimizations"]

logger = logging.getLogger("ort_sdk.optimizer")


class _Replayer(GraphMatcher):
    """Makes the replacements that the records of one optimizer tell of: of their nodes, by what they say is produced."""

    def __init__(self, graph: Graph, context: TransformerContext) -> None:
        super().__init__(graph, context)
        self._present = {id(node) for node in graph.nodes}
        self._members: frozenset[int] = frozenset()
        self._produced: tuple[str, ...] = ()

    def follow(self, fusion: FusionPass, optimization: RuntimeOptimization) -> bool:
        """Let a pass replace a record's nodes; returns whether they will be replaced."""
        self._members = frozenset(id(node) for node in optimization.nodes)
        self._produced = optimization.produced
        return self._members <= self._present and bool(fusion.fuse(self, optimization.target))

    def replace(self, match: Match, new: Node) -> bool:
        """Replace nodes of the record."""
        if any(id(node) not in self._members for node in match.nodes):
            return False
        if self._produced and op_id(new.domain, new.op_type, new.since_version) not in self._produced:
            return False
        return super().replace(match, new)


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
    changed = False
    for inner in recorded:
        for name in dict.fromkeys(each.optimizer for each in inner.runtime_optimizations):
            if name not in disabled:
                changed |= _replay(inner, context, name, passes.get(name))
    if changed:
        refresh_captures(graph)
    return changed


def _replay(graph: Graph, context: TransformerContext, name: str, fusion: FusionPass | None) -> bool:
    if fusion is not None and not fusion.is_enabled(context):
        return False
    replayer = _Replayer(graph, context)
    done: set[int] = set()
    for each in graph.runtime_optimizations:
        if each.optimizer != name:
            continue
        _check_action(each)
        if fusion is None or each.target.domain or each.target.op_type not in fusion.anchors:
            reason = "there is no such optimization here"
        elif not replayer.follow(fusion, each):
            reason = "its nodes have changed, or no kernel runs what would come instead"
        else:
            done.add(id(each))
            continue
        logger.warning("runtime optimization '%s' of %s is not made at %s: %s", each.action, name, each.target.describe(), reason)
    graph.runtime_optimizations = [each for each in graph.runtime_optimizations if id(each) not in done]
    return replayer.commit()


def _check_action(optimization: RuntimeOptimization) -> None:
    name, action = optimization.optimizer, optimization.action
    if name in ACTIONS and action not in ACTIONS[name]:
        raise Fail(
            f"Missing action {action} for transformer {name}; its actions are {', '.join(sorted(ACTIONS[name]))}. "
            "The model runs without its saved optimizations: leave out session.enable_saved_runtime_optimizations"
        )
